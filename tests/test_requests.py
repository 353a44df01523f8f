"""What a request may say, and what the engine is told of it."""

import dataclasses
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.walkway.v1 import inference_pb2 as pb
from schedulers.interface import RequestId
from service.admission import Admission
from service.deadlines import Deadlines
from service.errors import (
    CODES,
    Cancelled,
    Expired,
    InvalidArgument,
    NeverFits,
    Overloaded,
    ServiceError,
)
from service.messages import Finish, Limits, Ready, Submit
from service.requests import Arrival, judge

READY = Ready(
    generation=1,
    model="m",
    family="f",
    dtype="fp32",
    vocab_size=100,
    context_tokens=50,
    num_pages=11,
    page_size=4,
    attention="a",
    attention_why="w",
    batch_invariant=True,
    scheduler="s",
    eos_ids=[99],
)
ARRIVAL = Arrival(
    at_s=1000.0, call_expires_s=None, request_timeout_s=None, queue_timeout_s=None
)


def request(**fields: object) -> pb.GenerateRequest:
    return pb.GenerateRequest(**({"text": "x"} | fields))


def fit(message: pb.GenerateRequest, prompt: int = 3, arrival: Arrival = ARRIVAL) -> Submit:
    return judge(message, READY).fit(1, [1] * prompt, arrival)


def sampling(**fields: object) -> pb.GenerateRequest:
    return request(sampling=pb.Sampling(**fields))


def stopping(**fields: object) -> pb.GenerateRequest:
    return request(stopping=pb.Stopping(**fields))


def output(**fields: object) -> pb.GenerateRequest:
    return request(output=pb.Output(**fields))


def seconds(field: str, length_s: int, nanos: int = 0) -> pb.GenerateRequest:
    message = request()
    place = message.stopping if field == "max_time" else message
    getattr(place, field).seconds = length_s
    getattr(place, field).nanos = nanos
    return message


@pytest.mark.parametrize(
    ("message", "field", "words"),
    [
        (sampling(temperature=-0.1), "sampling.temperature", ["-0.1", "0 to 10"]),
        (sampling(temperature=10.5), "sampling.temperature", ["10.5", "0 to 10"]),
        (sampling(temperature=math.nan), "sampling.temperature", ["nan"]),
        (sampling(top_p=0.0), "sampling.top_p", ["0", "1"]),
        (sampling(top_p=1.5), "sampling.top_p", ["1.5"]),
        (sampling(top_p=math.nan), "sampling.top_p", ["nan"]),
        (sampling(min_p=-0.5), "sampling.min_p", ["-0.5"]),
        (sampling(min_p=1.5), "sampling.min_p", ["1.5"]),
        (sampling(repetition_penalty=0.0), "sampling.repetition_penalty", ["0", "10"]),
        (sampling(repetition_penalty=0.0099), "sampling.repetition_penalty", ["0.01 to 10"]),
        (sampling(repetition_penalty=math.nan), "sampling.repetition_penalty", ["nan"]),
        (sampling(repetition_penalty=math.inf), "sampling.repetition_penalty", ["inf"]),
        (sampling(frequency_penalty=2.5), "sampling.frequency_penalty", ["2.5", "-2 to 2"]),
        (sampling(presence_penalty=-2.5), "sampling.presence_penalty", ["-2.5"]),
        (sampling(logit_bias={100: 1.0}), "sampling.logit_bias", ["id 100", "is 100"]),
        (sampling(logit_bias={5: 101.0}), "sampling.logit_bias[5]", ["101", "100"]),
        (sampling(logit_bias={5: -math.inf}), "sampling.logit_bias[5]", ["-inf"]),
        (stopping(stop_token_ids=[7, 100]), "stopping.stop_token_ids", ["id 100"]),
        (stopping(stop_token_ids=[1] * 129), "stopping.stop_token_ids", ["129", "128"]),
        (stopping(stop_strings=[""]), "stopping.stop_strings[0]", ["0 bytes", "1 to 1024"]),
        (stopping(stop_strings=["a", "é" * 513]), "stopping.stop_strings[1]", ["1026 bytes"]),
        (stopping(stop_strings=["a"] * 17), "stopping.stop_strings", ["17", "16"]),
        (stopping(max_tokens=3, min_tokens=4), "stopping.min_tokens", ["4", "0 to 3"]),
        (stopping(min_tokens=51), "stopping.min_tokens", ["51", "0 to 50"]),
        (seconds("max_time", 0), "stopping.max_time", ["0 s"]),
        (seconds("max_time", -1), "stopping.max_time", ["-1 s"]),
        (seconds("deadline", 0), "deadline", ["0 s"]),
        (seconds("first_token_deadline", 0, -1), "first_token_deadline", ["-1e-09 s"]),
        (seconds("deadline", 2, -1), "deadline", ["2 seconds", "-1 nanos"]),
        (seconds("deadline", -1, 1), "deadline", ["-1 seconds", "1 nanos"]),
        (seconds("max_time", 0, 10**9), "stopping.max_time", ["1000000000 nanos"]),
        (output(logprobs=21), "output.logprobs", ["21", "0 to 20"]),
        (output(prompt_logprobs=4_000_000_000), "output.prompt_logprobs", ["4000000000"]),
        (request(tokens_per_second=0.0), "tokens_per_second", ["is 0", "more than 0"]),
        (request(tokens_per_second=-2.5), "tokens_per_second", ["is -2.5"]),
        (request(tokens_per_second=math.inf), "tokens_per_second", ["is inf", "finite"]),
        (request(tokens_per_second=math.nan), "tokens_per_second", ["is nan"]),
        (request(request_id=""), "request_id", ["0 bytes", "1 to 128"]),
        (request(request_id="x" * 129), "request_id", ["129 bytes"]),
        (request(tenant="x" * 129), "tenant", ["129 bytes"]),
        (request(cache_salt="x" * 257), "cache_salt", ["257 bytes"]),
        (request(priority=16), "priority", ["16", "0 to 15"]),
        (pb.GenerateRequest(), "prompt", ["one is needed"]),
        (pb.GenerateRequest(token_ids=pb.TokenIds(ids=[100])), "token_ids.ids", ["id 100"]),
        (pb.GenerateRequest(chat=pb.Chat()), "chat", ["0 messages"]),
        (
            pb.GenerateRequest(chat=pb.Chat(messages=[pb.ChatMessage(content="x")])),
            "chat.messages[0].role",
            ["empty"],
        ),
    ],
)
def test_a_field_out_of_range_is_refused_with_value_and_limit(
    message: pb.GenerateRequest, field: str, words: list[str]
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        judge(message, READY)
    assert [v.field for v in caught.value.violations] == [field]
    for word in words:
        assert word in str(caught.value)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(InvalidArgument) as caught:
        judge(pb.GenerateRequest(priority=99, sampling=pb.Sampling(min_p=2)), READY)
    assert {v.field for v in caught.value.violations} == {
        "prompt",
        "priority",
        "sampling.min_p",
    }


def test_a_thousand_mistakes_still_fit_a_status() -> None:
    bias = dict.fromkeys(range(100), 1000.0)
    with pytest.raises(InvalidArgument) as caught:
        judge(sampling(logit_bias=bias), READY)
    assert len(str(caught.value)) < 4000


def test_absent_fields_have_the_defaults_that_the_contract_names() -> None:
    submit = fit(request())
    chosen = submit.sampling
    assert (chosen.temperature, chosen.top_k, chosen.top_p, chosen.min_p) == (1.0, 0, 1.0, 0.0)
    assert chosen.repetition_penalty == 1.0
    assert (chosen.logprobs, chosen.prompt_logprobs) == (None, None)
    assert chosen.stop_ids == (99,)
    assert submit.priority == 4
    assert submit.limits.end_by_s is submit.limits.expire_by_s is None


def test_without_a_temperature_the_model_names_it() -> None:
    cool = msgspec.structs.replace(READY, temperature=0.25)
    for message, temperature in ((request(), 0.25), (sampling(temperature=0.0), 0.0)):
        submit = judge(message, cool).fit(1, [1], ARRIVAL)
        assert submit.sampling.temperature == temperature


def test_zero_is_not_absent() -> None:
    message = request(
        sampling=pb.Sampling(temperature=0.0, seed=0),
        stopping=pb.Stopping(max_tokens=0),
        output=pb.Output(logprobs=0),
        priority=0,
    )
    submit = fit(message)
    assert submit.sampling.temperature == 0.0
    assert submit.sampling.seed == 0
    assert submit.sampling.logprobs == 0
    assert submit.limits.max_tokens == 0
    assert submit.priority == 0


def test_stop_ids_come_on_top_of_the_models_own() -> None:
    assert fit(stopping(stop_token_ids=[3, 99])).sampling.stop_ids == (99, 3)
    ignoring = stopping(stop_token_ids=[3], ignore_eos=True)
    assert fit(ignoring).sampling.stop_ids == (3,)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "refusal"),
    [
        (0, None, InvalidArgument),
        (50, None, NeverFits),
        (51, None, InvalidArgument),
        (40, 11, InvalidArgument),
        (40, 1, None),
        (41, 0, NeverFits),
        (40, 2, NeverFits),
        (31, 10, None),
        (31, 11, NeverFits),
    ],
)
def test_context_and_pages_bound_prompt_and_answer(
    prompt: int, max_tokens: int | None, refusal: type[ServiceError] | None
) -> None:
    message = request() if max_tokens is None else stopping(max_tokens=max_tokens)
    if refusal is None:
        assert fit(message, prompt).limits.max_tokens == max_tokens
    else:
        with pytest.raises(refusal):
            fit(message, prompt)


@given(st.integers(1, 40))
def test_without_a_limit_the_answer_may_use_what_is_left(prompt: int) -> None:
    most = fit(request(), prompt).limits.max_tokens
    assert most == min(50 - prompt, 41 - prompt)
    assert fit(stopping(max_tokens=most), prompt).limits.max_tokens == most


@pytest.mark.parametrize("penalty", [0.01, 1.0, 10.0])
def test_the_ends_of_a_range_are_inside_also_as_floats_of_the_wire(penalty: float) -> None:
    message = sampling(repetition_penalty=penalty)
    assert fit(message).sampling.repetition_penalty == pytest.approx(penalty)


def test_the_tenant_is_the_field_else_the_metadata_else_the_default() -> None:
    def tenant(message: pb.GenerateRequest, header: str) -> str:
        return judge(message, READY, header).fit(1, [1], ARRIVAL).tenant

    assert tenant(request(tenant="field"), "header") == "field"
    assert tenant(request(tenant="field"), "x" * 129) == "field"
    assert tenant(request(), "header") == "header"
    assert tenant(request(), "") == "default"
    with pytest.raises(InvalidArgument, match="x-walkway-tenant: has 129 bytes"):
        tenant(request(), "x" * 129)


def test_a_tokenizer_larger_than_its_model_is_the_callers_to_know() -> None:
    judged = judge(request(), READY)
    assert judged.fit(1, [99, 1], ARRIVAL).prompt == [99, 1]
    with pytest.raises(InvalidArgument, match=r"text: becomes token id 100.* is 100"):
        judged.fit(1, [1, 100, 2], ARRIVAL)


def test_a_call_that_is_over_before_it_was_taken_expired_or_was_left() -> None:
    arrival = dataclasses.replace(ARRIVAL, call_expires_s=1005.0)
    assert isinstance(arrival.why_over(1004.99), Expired)
    assert isinstance(arrival.why_over(1004.0), Cancelled)
    assert isinstance(ARRIVAL.why_over(9999.0), Cancelled)


def test_times_count_from_arrival_and_the_earliest_end_wins() -> None:
    arrival = dataclasses.replace(
        ARRIVAL, call_expires_s=1005.0, request_timeout_s=9.0, queue_timeout_s=2.0
    )
    message = seconds("max_time", 3, 500_000_000)
    submit = fit(message, arrival=arrival)
    assert submit.limits.end_by_s == 1003.5
    assert submit.limits.expire_by_s == 1005.0
    assert submit.limits.admit_by_s == 1002.0
    assert submit.deadline_s == 1005.0
    later = dataclasses.replace(arrival, call_expires_s=1020.0)
    assert fit(message, arrival=later).limits.expire_by_s == 1009.0
    assert fit(seconds("deadline", 1), arrival=later).deadline_s == 1001.0
    assert fit(seconds("deadline", 30), arrival=later).deadline_s == 1020.0
    assert fit(seconds("deadline", 30)).deadline_s == 1030.0
    assert fit(request()).deadline_s is None


def test_of_limits_at_the_same_moment_an_answer_goes_before_an_error() -> None:
    deadlines = Deadlines({RequestId(1), RequestId(2)})
    deadlines.add(RequestId(1), Limits(5, end_by_s=3.0, expire_by_s=3.0, admit_by_s=3.0))
    deadlines.add(RequestId(2), Limits(5, expire_by_s=math.inf, admit_by_s=3.0))
    assert list(deadlines.due(3.0)) == [
        (1, Finish.MAX_TIME),
        (1, Finish.EXPIRED),
        (1, Finish.QUEUE_TIMEOUT),
        (2, Finish.QUEUE_TIMEOUT),
    ]
    assert list(deadlines.due(math.inf)) == []


def test_every_error_of_the_service_has_a_status() -> None:
    def leaves(kind: type[ServiceError]) -> set[type[ServiceError]]:
        below = kind.__subclasses__()
        return set().union(*map(leaves, below)) if below else {kind}

    assert leaves(ServiceError) == set(CODES)


@given(st.lists(st.tuples(st.sampled_from(["enter", "weigh", "leave"]), st.integers(0, 30))))
def test_places_that_were_taken_are_all_given_back(moves: list[tuple[str, int]]) -> None:
    admission = Admission(max_requests=3, max_tokens=40, max_bytes=50)
    places = []
    for move, number in moves:
        try:
            if move == "enter":
                places.append(admission.enter(number))
            elif places and move == "weigh" and not places[-1].tokens:
                places[-1].weigh(number)
            elif places and move == "leave":
                places[number % len(places)].leave()
        except Overloaded:
            continue
        assert 0 <= admission.requests <= 3
        assert 0 <= admission.tokens <= 40
        assert 0 <= admission.bytes <= 50
    for place in places:
        place.leave()
    assert (admission.requests, admission.tokens, admission.bytes) == (0, 0, 0)


def test_a_prompt_longer_than_the_bound_is_let_in_alone() -> None:
    admission = Admission(max_requests=3, max_tokens=40, max_bytes=50)
    admission.enter(100).weigh(100)
    with pytest.raises(Overloaded):
        admission.enter(0).weigh(1)
