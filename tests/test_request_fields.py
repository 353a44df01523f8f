"""Each field of a request arrives where it belongs, and none is read beyond its limit."""

import time
from collections.abc import Callable

import msgspec
import pytest
from google.protobuf.duration_pb2 import Duration

from models.batch import Sampling
from protos.walkway.v1 import inference_pb2 as pb
from service.errors import InvalidArgument
from service.messages import Limits, Submit
from service.requests import Answering, Arrival, judge
from tests.engine_builds import READY

FULL = pb.GenerateRequest(
    request_id="id",
    text="x",
    cache_salt="salt",
    priority=9,
    tenant="someone",
    deadline=Duration(seconds=70),
    first_token_deadline=Duration(seconds=7),
    tokens_per_second=18.5,
    sampling=pb.Sampling(
        temperature=0.5,
        top_k=11,
        top_p=0.75,
        min_p=0.125,
        repetition_penalty=1.5,
        frequency_penalty=0.25,
        presence_penalty=-0.5,
        seed=12,
        logit_bias={8: -3.0, 6: 4.0},
    ),
    stopping=pb.Stopping(
        max_tokens=21,
        min_tokens=13,
        max_time=Duration(seconds=60),
        ignore_eos=True,
        stop_strings=["b", "a"],
        stop_token_ids=[15, 14],
        include_stop=True,
    ),
    output=pb.Output(
        text=False,
        token_ids=True,
        skip_special_tokens=False,
        logprobs=16,
        prompt_logprobs=17,
        scheduling_events=True,
    ),
)


def test_every_field_arrives_where_it_belongs() -> None:
    for message in (FULL, FULL.sampling, FULL.stopping, FULL.output):
        told = {field.name for field, _ in message.ListFields()}
        others = {field.name for field in message.DESCRIPTOR.fields} - told
        assert others <= {"token_ids", "chat"}, "of the prompts one is enough"
    judged = judge(FULL, READY)
    arrival = Arrival(1000.0, call_expires_s=None, request_timeout_s=600, queue_timeout_s=120)
    assert judged.fit(31, [1, 2, 3], arrival) == Submit(
        id=31,
        prompt=[1, 2, 3],
        sampling=Sampling(
            temperature=0.5,
            top_k=11,
            top_p=0.75,
            min_p=0.125,
            repetition_penalty=1.5,
            frequency_penalty=0.25,
            presence_penalty=-0.5,
            seed=12,
            logit_bias=((6, 4.0), (8, -3.0)),
            min_tokens=13,
            stop_ids=(15, 14),
            logprobs=16,
            prompt_logprobs=17,
        ),
        limits=Limits(21, end_by_s=1060.0, expire_by_s=1600.0, admit_by_s=1120.0),
        arrival_s=1000.0,
        priority=9,
        tenant="someone",
        namespace="salt",
        deadline_s=1070.0,
        first_token_deadline_s=1007.0,
        tokens_per_second=18.5,
    )
    assert judged.request_id == "id"
    assert judged.answering == Answering(
        text=False,
        token_ids=True,
        logprobs=True,
        stop_strings=("b", "a"),
        include_stop=True,
        skip_special_tokens=False,
        scheduling_events=True,
    )


MANY = 200_000
ELEMENTS: dict[str, tuple[int, Callable[[int], pb.GenerateRequest]]] = {
    "stopping.stop_strings": (
        16,
        lambda n: pb.GenerateRequest(text="x", stopping=pb.Stopping(stop_strings=["a"] * n)),
    ),
    "stopping.stop_token_ids": (
        128,
        lambda n: pb.GenerateRequest(text="x", stopping=pb.Stopping(stop_token_ids=[1] * n)),
    ),
    "chat.messages": (
        4096,
        lambda n: pb.GenerateRequest(chat=pb.Chat(messages=[pb.ChatMessage(role="user")] * n)),
    ),
    "sampling.logit_bias": (
        1024,
        lambda n: pb.GenerateRequest(
            text="x", sampling=pb.Sampling(logit_bias=dict.fromkeys(range(n), 1.0))
        ),
    ),
}
LARGE = msgspec.structs.replace(READY, vocab_size=MANY)


@pytest.mark.parametrize("field", ELEMENTS)
def test_so_many_elements_as_the_contract_allows_and_no_more(field: str) -> None:
    limit, message = ELEMENTS[field]
    judge(message(limit), LARGE)
    with pytest.raises(InvalidArgument) as caught:
        judge(message(limit + 1), LARGE)
    (violation,) = caught.value.violations
    assert violation.field == field
    assert violation.description == f"has {limit + 1} elements, the limit is {limit}"


@pytest.mark.parametrize("field", ELEMENTS)
def test_elements_far_beyond_their_limit_are_refused_unread(field: str) -> None:
    """Reading a million takes a second, in which nobody gets a token."""
    message = ELEMENTS[field][1](MANY)
    took_s = []
    for _ in range(3):
        started_s = time.perf_counter()
        with pytest.raises(InvalidArgument, match=f"{field}: has {MANY} elements"):
            judge(message, LARGE)
        took_s.append(time.perf_counter() - started_s)
    assert min(took_s) < 0.01
