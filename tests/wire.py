"""A whole service over a real channel, with the toy model on an engine in a thread."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from models.batch import Runner, StepBatch, StepResult
from models.tokenizer import Tokenizer
from models.toy import CONTEXT, VOCABULARY, ToyTokenizer
from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1.admin_pb2_grpc import AdminServiceStub
from protos.walkway.v1.inference_pb2_grpc import InferenceServiceStub
from service.build import TOY_SLOT_BYTES
from service.engine_process import Build, Built
from service.frontend import FrontEnd
from service.messages import Ready
from service.settings import Settings
from service.step_sizes import step_sizes
from service.strategy import make_scheduler
from tests.cores import make_core, make_toy

PAGE_SIZE = 4


class Paced:
    """A runner that takes `step_s` a step, and does `before` first."""

    def __init__(
        self, inner: Runner, step_s: float, before: Callable[[StepBatch], None]
    ) -> None:
        self._inner, self._step_s, self._before = inner, step_s, before

    def step(self, batch: StepBatch) -> StepResult:
        self._before(batch)
        time.sleep(self._step_s)
        return self._inner.step(batch)


def toy_build(
    pages: int = 4095,
    step_s: float = 0.001,
    context: int = CONTEXT,
    host: int = 0,
    before: Callable[[StepBatch], None] = lambda batch: None,
) -> Build:
    """Builds the toy with so many pages of `PAGE_SIZE` tokens."""

    def build(settings: Settings) -> Built:
        sizes = step_sizes(settings.engine, "cpu")
        core = make_core(
            pages=pages,
            page_size=PAGE_SIZE,
            host=host,
            rows=sizes.max_rows,
            budget=sizes.max_step_tokens,
            audit=None,
        )
        chosen = settings.scheduler
        scheduler = make_scheduler(chosen.name, chosen.options)
        core.planner.exchange(chosen.name, scheduler, chosen.options)
        ready = Ready(
            generation=0,
            model="toy",
            family="toy",
            dtype="int64",
            vocab_size=VOCABULARY,
            context_tokens=context,
            num_pages=pages + 1,
            page_size=PAGE_SIZE,
            attention="none",
            attention_why="the toy has none",
            batch_invariant=True,
            scheduler=chosen.name,
            eos_ids=[256],
            max_rows=sizes.max_rows,
            max_step_tokens=sizes.max_step_tokens,
            page_bytes=PAGE_SIZE * TOY_SLOT_BYTES,
            host_pages=host,
        )
        return Built(core, Paced(make_toy(core), step_s, before), ready)

    return build


@dataclasses.dataclass
class Wire:
    """A service and a client's channel to it."""

    service: FrontEnd
    channel: grpc.aio.Channel
    admin_channel: grpc.aio.Channel

    @property
    def admin(self) -> AdminServiceStub:
        return AdminServiceStub(self.admin_channel)

    @property
    def stub(self) -> InferenceServiceStub:
        return InferenceServiceStub(self.channel)

    def gauge(self, metric: str, /, **labels: str) -> float:
        found = self.service.metrics.registry.get_sample_value(f"walkway_{metric}", labels)
        return found or 0.0

    async def settled(self) -> None:
        """Until the engine says that it holds nothing."""
        await self.until(
            lambda: (
                self.gauge("requests", state="running") == 0
                and self.gauge("requests", state="waiting") == 0
                and self.gauge("kv_pages", state="held") == 0
            )
        )

    async def until(self, true: Callable[[], bool], limit_s: float = 30.0) -> None:

        end_s = time.monotonic() + limit_s
        while not true():
            assert time.monotonic() < end_s, "waited in vain"
            await asyncio.sleep(0.005)


def make_settings(**groups: dict[str, Any]) -> Settings:
    quiet: dict[str, Any] = {
        "server": {"port": 0, "grace_s": 5.0} | groups.pop("server", {}),
        "engine": {"isolation": "inline"} | groups.pop("engine", {}),
        "model": {"source": "toy"} | groups.pop("model", {}),
        "metrics": {"enabled": False},
        "admin": {"port": 0},
    }
    return Settings(**(quiet | groups))


@asynccontextmanager
async def serving(
    build: Build | None = None,
    options: Sequence[tuple[str, int]] = (),
    tokenizer: Tokenizer | None = None,
    **groups: dict[str, Any],
) -> AsyncIterator[Wire]:

    service = FrontEnd(
        make_settings(**groups),
        build or toy_build(),
        lambda source: tokenizer or ToyTokenizer(),
    )
    try:
        await service.start()
        running = asyncio.create_task(service.run())
        target, admin_target = (
            f"127.0.0.1:{port}"
            for port in (service.listeners.port, service.listeners.admin_port)
        )
        async with (
            grpc.aio.insecure_channel(target, options=list(options)) as channel,
            grpc.aio.insecure_channel(admin_target) as admin_channel,
        ):
            yield Wire(service, channel, admin_channel)
        service.leaving.ask()
        await running
    finally:
        await service.stop()


def ask(
    text: str = "hello", max_tokens: int | None = 8, ignore_eos: bool = True, **fields: Any
) -> pb.GenerateRequest:
    """A greedy request that runs to its `max_tokens`."""
    stopping = pb.Stopping(max_tokens=max_tokens, ignore_eos=ignore_eos)
    stopping.MergeFrom(fields.pop("stopping", pb.Stopping()))
    sampling = pb.Sampling(temperature=0.0)
    sampling.MergeFrom(fields.pop("sampling", pb.Sampling()))
    request = pb.GenerateRequest(sampling=sampling, stopping=stopping, **fields)
    if request.WhichOneof("prompt") is None:
        request.text = text
    return request


async def collect(
    call: Any, messages: list[pb.GenerateStreamResponse] | None = None
) -> list[pb.GenerateStreamResponse]:
    """All messages; also in `messages`, for a call that ends with an error."""
    found = [] if messages is None else messages
    async for message in call:
        found.append(message)
    return found


def details(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    """What travels in `grpc-status-details-bin`."""
    status = status_pb2.Status()
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status.ParseFromString(value)
    return status


def bad_fields(error: grpc.aio.AioRpcError) -> dict[str, str]:
    request = error_details_pb2.BadRequest()
    details(error).details[0].Unpack(request)
    return {v.field: v.description for v in request.field_violations}


def retry_s(error: grpc.aio.AioRpcError) -> float:
    info = error_details_pb2.RetryInfo()
    details(error).details[0].Unpack(info)
    return info.retry_delay.ToNanoseconds() / 1e9


async def status_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def health_of(wire: Wire, name: str = "") -> int:
    request = health_pb2.HealthCheckRequest(service=name)
    answer = await health_pb2_grpc.HealthStub(wire.channel).Check(request)
    return answer.status


async def first_message(call: Any) -> pb.GenerateStreamResponse:
    return await anext(call.__aiter__())


# Without these gRPC on the client's side takes in megabytes that nobody reads.
SMALL_WINDOW = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535)]


async def unread(wire: Wire) -> Any:
    """A stream whose first message, the first token in it, is more than gRPC's buffers hold,
    and whose client does not read it."""
    tells = pb.Output(prompt_logprobs=20)
    before = wire.gauge("output_tokens_total")
    call = wire.stub.GenerateStream(ask("x" * 4000, max_tokens=8000, output=tells))
    await wire.until(lambda: wire.gauge("output_tokens_total") > before + 20)
    return call
