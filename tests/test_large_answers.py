"""Unary answers that are larger than a message may be."""

import grpc
import pytest

from models.batch import StepBatch
from protos.walkway.v1 import inference_pb2 as pb
from tests.wire import ask, serving, status_of, toy_build

Code = grpc.StatusCode
LIMIT = 30_000
SMALL = {"max_message_bytes": LIMIT}
SCORED = pb.Output(logprobs=20)


@pytest.mark.parametrize(
    "request_",
    [
        ask(max_tokens=250, output=SCORED),
        ask(
            max_tokens=260,
            ignore_eos=False,
            stopping=pb.Stopping(min_tokens=250),
            output=SCORED,
        ),
        ask(
            token_ids=pb.TokenIds(ids=[65] * 250),
            ignore_eos=False,
            output=pb.Output(prompt_logprobs=20),
        ),
    ],
)
async def test_an_answer_that_cannot_fit_is_refused_before_any_work(
    request_: pb.GenerateRequest,
) -> None:
    steps: list[StepBatch] = []
    async with serving(toy_build(before=steps.append), server=SMALL) as wire:
        error = await status_of(wire.stub.Generate(request_))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert "server.max_message_bytes" in (error.details() or "")
        assert str(LIMIT) in (error.details() or "")
        assert wire.gauge("requests_refused_total", code="RESOURCE_EXHAUSTED") == 1
        assert not steps
        messages = [m async for m in wire.stub.GenerateStream(request_)]
        assert messages[-1].HasField("summary")


async def test_an_answer_that_grows_too_large_ends_at_once_and_says_so() -> None:
    async with serving(toy_build(step_s=0.0), server=SMALL) as wire:
        may_stop = pb.Stopping(stop_strings=["never in it"])
        request = ask(max_tokens=8000, stopping=may_stop, output=SCORED)
        error = await status_of(wire.stub.Generate(request))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert str(LIMIT) in (error.details() or "")
        assert wire.gauge("requests_finished_total", finish="too_large") == 1
        assert wire.gauge("requests_finished_total", finish="cancelled") == 0
        await wire.settled()
        assert wire.gauge("output_tokens_total") < 4000


async def test_an_answer_that_just_fits_is_sent() -> None:
    async with serving(toy_build(step_s=0.0)) as wire:
        size = (await wire.stub.Generate(ask(max_tokens=400, output=SCORED))).ByteSize()
    may_stop = pb.Stopping(stop_strings=["never in it"])
    request = ask(max_tokens=400, stopping=may_stop, output=SCORED)
    for limit, fits in ((size + 30, True), (size - 200, False)):
        server = {"max_message_bytes": limit}
        async with serving(toy_build(step_s=0.0), server=server) as wire:
            if fits:
                assert len((await wire.stub.Generate(request)).logprobs) == 400
            else:
                error = await status_of(wire.stub.Generate(request))
                assert error.code() is Code.RESOURCE_EXHAUSTED
                assert wire.gauge("requests_finished_total", finish="too_large") == 1
