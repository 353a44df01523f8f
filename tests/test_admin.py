"""The operator's service over a real channel: look in, exchange the scheduler, watch."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from models.toy import ToyTokenizer
from protos.walkway.v1 import admin_pb2 as pb
from protos.walkway.v1 import inference_pb2
from protos.walkway.v1.admin_pb2_grpc import AdminServiceStub
from schedulers.registry import BUILT_IN
from service.admin_messages import options_of
from service.build import build
from service.desk import Desk, Rejected
from service.errors import Expired, Unavailable
from service.frontend import FrontEnd
from service.messages import Inspect, Inspected, SchedulerSet, SchedulerState, SetScheduler
from service.server import ADMIN
from service.supervisor import EngineDown
from tests.wire import (
    Wire,
    ask,
    bad_fields,
    collect,
    first_message,
    make_settings,
    retry_s,
    serving,
    status_of,
    toy_build,
)

Code = grpc.StatusCode


def choice(name: str, **options: Any) -> pb.SetSchedulerRequest:
    request = pb.SetSchedulerRequest(name=name)
    request.options.update(options)
    return request


def every(interval_s: float) -> pb.StreamStatisticsRequest:
    request = pb.StreamStatisticsRequest()
    request.interval.FromNanoseconds(int(interval_s * 1e9))
    return request


async def scheduler_of(wire: Wire) -> pb.Scheduler:
    return (await wire.admin.GetScheduler(pb.GetSchedulerRequest())).scheduler


async def test_an_exchange_holds_and_everybody_says_so() -> None:
    async with serving() as wire:
        assert wire.gauge("scheduler_info", name="fcfs") == 1
        answer = await wire.admin.SetScheduler(choice("static"))
        assert answer.scheduler.name == (await scheduler_of(wire)).name == "static"
        info = await wire.stub.GetModelInfo(inference_pb2.GetModelInfoRequest())
        assert info.scheduler == "static"
        assert wire.gauge("scheduler_info", name="static") == 1
        assert wire.gauge("scheduler_info", name="fcfs") == 0
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8


async def test_options_keep_their_kinds_on_the_way() -> None:
    async with serving() as wire:
        answer = await wire.admin.SetScheduler(
            choice("priority", aged_share=0.2, max_preemptions=3)
        )
        options = options_of(answer.scheduler.options)
        assert options == {
            "aged_share": 0.2,
            "preempt_levels": 1,
            "max_preemptions": 3,
            "eviction": "recompute",
            "urgent": 8,
            "bulk_share": 0.5,
        }
        assert isinstance(options["max_preemptions"], int)


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        (choice(""), "name", "0 bytes"),
        (choice("x" * 600), "name", "600 bytes"),
        (choice("sjf"), "name", "sjf"),
        (choice("fcfs", colour="red"), "options", "colour"),
        (choice("priority", aged_share=-1.0), "options", "aged_share is -1.0"),
        (choice("priority", age_s=6.0), "options", "no option 'age_s'; it has: aged_share"),
    ],
)
async def test_a_strategy_that_is_not_to_be_had_is_the_callers_mistake(
    request_: pb.SetSchedulerRequest, field: str, words: str
) -> None:
    async with serving() as wire:
        error = await status_of(wire.admin.SetScheduler(request_))
        assert error.code() is Code.INVALID_ARGUMENT
        assert words in bad_fields(error)[field]
        assert (await scheduler_of(wire)).name == "fcfs"


async def test_live_requests_are_listed_oldest_first_with_their_callers_names() -> None:
    async with serving(toy_build(step_s=0.005), engine={"max_rows": 1}) as wire:
        calls = []
        for count, name in enumerate(("first", "second", "third")):
            request = ask(max_tokens=4000, request_id=name, tenant="someone", priority=7)
            calls.append(wire.stub.GenerateStream(request))
            await wire.until(lambda open_=count + 1: len(wire.service.streams) == open_)
        await first_message(calls[0])
        found = await wire.admin.ListRequests(pb.ListRequestsRequest(limit=2))
        assert found.total == 3
        assert [r.request_id for r in found.requests] == ["first", "second"]
        running, waiting = found.requests
        assert running.state == pb.REQUEST_STATE_RUNNING
        assert waiting.state == pb.REQUEST_STATE_WAITING
        assert (running.tenant, running.priority, running.prompt_tokens) == ("someone", 7, 5)
        assert running.output_tokens > 0 < running.pages
        assert running.age.ToNanoseconds() >= waiting.age.ToNanoseconds() > 0
        for call in calls:
            call.cancel()
        await wire.settled()
        assert not (await wire.admin.ListRequests(pb.ListRequestsRequest())).requests


async def test_a_swapped_request_is_listed_with_what_it_holds_on_the_host() -> None:
    pressed = toy_build(pages=24, host=64, step_s=0.02)
    chosen = {"name": "swap", "options": {"eviction": "swap"}}
    async with serving(pressed, scheduler=chosen) as wire:
        requests = [
            ask(f"{n} of two, with a prompt of 40 characters.", max_tokens=50) for n in "12"
        ]
        calls = [wire.stub.GenerateStream(request) for request in requests]
        await wire.until(lambda: wire.gauge("requests", state="swapped") == 1)
        found = await wire.admin.ListRequests(pb.ListRequestsRequest())
        runs, swapped = found.requests
        assert runs.state == pb.REQUEST_STATE_RUNNING
        assert (runs.host_pages, runs.preemptions) == (0, 0)
        assert swapped.state == pb.REQUEST_STATE_SWAPPED
        assert (swapped.pages, swapped.preemptions) == (0, 1)
        assert swapped.host_pages == -(-swapped.computed_tokens // 4) > 0
        for call in calls:
            call.cancel()
        await wire.settled()


@pytest.mark.parametrize("limit", [0, 10_001])
async def test_a_list_is_bounded(limit: int) -> None:
    async with serving() as wire:
        error = await status_of(wire.admin.ListRequests(pb.ListRequestsRequest(limit=limit)))
        assert list(bad_fields(error)) == ["limit"]


async def test_statistics_come_at_each_interval_and_add_up() -> None:
    async with serving() as wire:
        await wire.stub.Generate(ask(max_tokens=8))
        call = wire.admin.StreamStatistics(every(0.1))
        first = await first_message(call)
        await wire.stub.Generate(ask(max_tokens=8))
        later = [await first_message(call) for _ in range(3)][-1]
        assert later.uptime.ToNanoseconds() - first.uptime.ToNanoseconds() >= 0.29e9
        assert (first.output_tokens, later.output_tokens) == (8, 16)
        assert (first.scheduler, first.running, first.held_pages) == ("fcfs", 0, 0)
        assert first.free_pages == 4095
        call.cancel()


@pytest.mark.parametrize("interval_s", [0.05, 3601.0])
async def test_an_interval_is_bounded(interval_s: float) -> None:
    async with serving() as wire:
        error = await status_of(collect(wire.admin.StreamStatistics(every(interval_s))))
        assert list(bad_fields(error)) == ["interval"]


async def test_an_interval_that_is_no_duration_is_refused() -> None:
    async with serving() as wire:
        request = pb.StreamStatisticsRequest()
        request.interval.seconds, request.interval.nanos = 2, -1
        error = await status_of(collect(wire.admin.StreamStatistics(request)))
        assert "-1 nanos" in bad_fields(error)["interval"]


async def test_statistics_come_at_once_and_end_when_the_server_drains() -> None:
    async with serving() as wire:
        call = wire.admin.StreamStatistics(every(3600))
        await asyncio.wait_for(first_message(call), 5)
        draining = asyncio.create_task(wire.service.drain())
        assert await asyncio.wait_for(collect(call), 2) == []
        await draining
        assert (await scheduler_of(wire)).name == "fcfs"


async def test_without_an_engine_every_answer_is_to_come_again() -> None:
    engine = {"isolation": "process", "restart_backoff_s": 1.0}
    async with serving(build, engine=engine) as wire:
        await wire.admin.SetScheduler(choice("static"))
        watching = wire.admin.StreamStatistics(every(0.1))
        await first_message(watching)
        (engine_,) = multiprocessing.active_children()
        os.kill(engine_.pid, signal.SIGSTOP)
        unanswered = wire.admin.GetScheduler(pb.GetSchedulerRequest())
        await wire.until(lambda: len(wire.service.desk) == 1)
        engine_.kill()
        error = await asyncio.wait_for(status_of(unanswered), 2)
        assert error.code() is Code.UNAVAILABLE
        assert retry_s(error) > 0
        await wire.until(lambda: wire.gauge("engine_up") == 0)
        for call in (
            collect(watching),
            wire.admin.GetScheduler(pb.GetSchedulerRequest()),
            wire.admin.SetScheduler(choice("fcfs")),
            wire.admin.ListRequests(pb.ListRequestsRequest()),
            collect(wire.admin.StreamStatistics(pb.StreamStatisticsRequest())),
        ):
            error = await asyncio.wait_for(status_of(call), 5)
            assert error.code() is Code.UNAVAILABLE
            assert retry_s(error) > 0
        await wire.until(lambda: wire.gauge("engine_up") == 1)
        assert (await scheduler_of(wire)).name == "static"


async def test_the_admin_address_has_its_own_health_and_reflection() -> None:
    async with (
        serving() as wire,
        grpc.aio.insecure_channel(f"127.0.0.1:{wire.service.listeners.admin_port}") as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(service=ADMIN))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = [a async for a in stub.ServerReflectionInfo(iter([request]))]
        names = {s.name for s in answers[0].list_services_response.service}
        assert ADMIN in names
        assert "walkway.v1.InferenceService" not in names
        error = await status_of(
            AdminServiceStub(wire.channel).GetScheduler(pb.GetSchedulerRequest())
        )
        assert error.code() is Code.UNIMPLEMENTED


async def test_an_admin_address_that_is_not_wanted_is_not_opened() -> None:
    settings = make_settings(admin={"enabled": False})
    service = FrontEnd(settings, toy_build(), lambda source: ToyTokenizer())
    try:
        await service.start()
        assert service.listeners.port > 0 == service.listeners.admin_port
    finally:
        await service.stop()


async def test_streams_do_not_notice_that_strategies_are_exchanged() -> None:
    prompts = [f"stream number {n} of the crowd" for n in range(6)]
    requests = [ask(prompt, max_tokens=60) for prompt in prompts]
    async with serving() as wire:
        alone = [(await wire.stub.Generate(request)).text for request in requests]
    async with serving(toy_build(pages=40, host=20), engine={"max_rows": 5}) as wire:
        answers = asyncio.gather(*(collect(wire.stub.GenerateStream(r)) for r in requests))
        while not answers.done():
            for name in [*BUILT_IN, *reversed(BUILT_IN)]:
                await wire.admin.SetScheduler(choice(name))
                await asyncio.sleep(0.005)
        texts = ["".join(m.text for m in messages) for messages in await answers]
        assert texts == alone
        assert wire.service.statistics.total.preemptions > 0
        await wire.settled()


def desk(
    sent: list[object], exchanged: list[str], answer_s: float = 5.0
) -> tuple[Desk, Callable[..., SchedulerSet]]:
    def accept(ticket: int, error: str | None = None) -> SchedulerSet:
        return SchedulerSet(1, ticket, error)

    return Desk(sent.append, lambda choice: exchanged.append(choice.name), answer_s), accept


async def test_answers_find_whoever_asked_in_whatever_order() -> None:
    sent: list[object] = []
    exchanged: list[str] = []
    front, accept = desk(sent, exchanged)
    asked = [
        asyncio.create_task(front.exchange("good", {"a": 1})),
        asyncio.create_task(front.exchange("bad", {})),
        asyncio.create_task(front.inspect()),
    ]
    await asyncio.sleep(0)
    assert sent == [SetScheduler(1, "good", {"a": 1}), SetScheduler(2, "bad", {}), Inspect(3)]
    found = Inspected(1, 3, SchedulerState("good", {}, 0), [])
    for answer in (found, accept(2, "no such thing"), accept(1)):
        front.answer(answer)
    assert await asked[2] is found
    with pytest.raises(Rejected, match="no such thing"):
        await asked[1]
    await asked[0]
    assert (exchanged, len(front)) == (["good"], 0)


async def test_an_engine_that_does_not_answer_keeps_nobody_waiting() -> None:
    sent: list[object] = []
    exchanged: list[str] = []
    front, accept = desk(sent, exchanged, answer_s=0.05)
    with pytest.raises(Expired, match=r"0\.05 s"):
        await asyncio.wait_for(front.exchange("late", {}), 5)
    front.answer(accept(1))  # it came true all the same
    assert (exchanged, len(front)) == (["late"], 0)


async def test_questions_to_a_dead_engine_end_at_once() -> None:
    front, _ = desk([], [])
    asked = asyncio.create_task(front.inspect())
    await asyncio.sleep(0)
    front.fail_all(Unavailable("gone", 1.0))
    with pytest.raises(Unavailable, match="gone"):
        await asked
    assert len(front) == 0


async def test_nobody_there_to_ask_is_to_come_again() -> None:
    def refuse(question: object) -> None:
        raise EngineDown(3.0)

    with pytest.raises(Unavailable) as caught:
        await Desk(refuse, lambda choice: None).inspect()
    assert 3.0 <= caught.value.retry_after_s <= 4.5
