"""The wire contract over a real channel: answers, refusals and descriptions."""

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from models.chat_template import ChatTemplateError, NoChatTemplate
from models.toy import ToyTokenizer
from protos.walkway.v1 import admin_pb2
from protos.walkway.v1 import inference_pb2 as pb
from service.server import SERVICE
from tests.wire import (
    ask,
    bad_fields,
    collect,
    details,
    first_message,
    health_of,
    serving,
    status_of,
    toy_build,
)

Code = grpc.StatusCode


def tokens_of(ids: list[int], characters: int) -> int:
    """How many of the toy's tokens make so many characters; one of them makes none."""
    return next(
        n for n in range(len(ids) + 1) if len(ToyTokenizer().decode(ids[:n])) == characters
    )


async def test_deltas_add_up_to_the_whole_answer() -> None:
    async with serving() as wire:
        request = ask(
            max_tokens=30, output=pb.Output(token_ids=True, logprobs=2, prompt_logprobs=1)
        )
        whole = await wire.stub.Generate(request)
        messages = await collect(wire.stub.GenerateStream(request))
        assert "".join(m.text for m in messages) == whole.text
        assert [t for m in messages for t in m.token_ids] == list(whole.token_ids)
        assert [p for m in messages for p in m.logprobs] == list(whole.logprobs)
        assert [p for m in messages for p in m.prompt_logprobs] == list(whole.prompt_logprobs)
        assert len(whole.token_ids) == len(whole.logprobs) == 30
        assert len(whole.prompt_logprobs) == len("hello") - 1
        assert [m.HasField("summary") for m in messages] == [False] * (len(messages) - 1) + [
            True
        ]
        assert messages[-1].summary.finish_reason == pb.FINISH_REASON_LENGTH
        assert whole.summary.usage.output_tokens == 30


async def test_the_summary_carries_usage_seed_and_timings() -> None:
    async with serving() as wire:
        await wire.stub.Generate(ask("the same prompt twice", request_id="one"))
        answer = await wire.stub.Generate(ask("the same prompt twice", request_id="two"))
        summary = answer.summary
        assert summary.request_id == "two"
        assert summary.usage.prompt_tokens == 21
        assert summary.usage.cached_tokens == 20
        timings = summary.timings
        spent = [t.ToNanoseconds() for t in (timings.queue, timings.first_token, timings.total)]
        assert spent == sorted(spent)
        assert spent[0] > 0


async def test_prompts_share_the_cache_only_under_an_equal_salt() -> None:
    async def cached(salt: str) -> int:
        answer = await wire.stub.Generate(ask("the same prompt each time", cache_salt=salt))
        return answer.summary.usage.cached_tokens

    async with serving() as wire:
        assert [await cached(salt) for salt in ("", "one", "two")] == [0, 0, 0]
        assert [await cached(salt) for salt in ("", "one", "two")] == [24, 24, 24]


async def test_a_seed_that_was_drawn_is_returned_and_gives_the_same_answer_again() -> None:
    async with serving() as wire:
        free = ask(max_tokens=20, sampling=pb.Sampling(temperature=1.0))
        first = await wire.stub.Generate(free)
        again = ask(
            max_tokens=20, sampling=pb.Sampling(temperature=1.0, seed=first.summary.seed)
        )
        assert (await wire.stub.Generate(again)).text == first.text
        assert (await wire.stub.Generate(free)).summary.seed != first.summary.seed


async def test_a_stop_string_ends_the_answer_and_the_work() -> None:
    async with serving() as wire:
        whole = await wire.stub.Generate(ask(max_tokens=40, output=pb.Output(logprobs=0)))
        text, ids = whole.text, [entry.token_id for entry in whole.logprobs]
        stop = text[10:14]
        request = ask(max_tokens=5000, stopping=pb.Stopping(stop_strings=[stop]))
        answer = await wire.stub.Generate(request)
        assert answer.text == text[: text.index(stop)]
        assert answer.summary.finish_reason == pb.FINISH_REASON_STOP
        assert answer.summary.stop_string == stop
        assert answer.summary.usage.output_tokens == tokens_of(
            ids, text.index(stop) + len(stop)
        )
        assert answer.summary.timings.HasField("queue")
        await wire.settled()
        assert wire.gauge("dropped_tokens_total") < 100


async def test_a_stop_token_is_named() -> None:
    async with serving() as wire:
        text = (await wire.stub.Generate(ask(max_tokens=10))).text
        wanted = ord(text[4])
        request = ask(max_tokens=10, stopping=pb.Stopping(stop_token_ids=[wanted]))
        summary = (await wire.stub.Generate(request)).summary
        assert summary.finish_reason == pb.FINISH_REASON_STOP
        assert summary.stop_token_id == wanted
        assert summary.usage.output_tokens < 10


async def test_a_prompt_of_white_space_is_a_prompt() -> None:
    async with serving() as wire:
        answer = await wire.stub.Generate(ask(" \n\t "))
        by_ids = await wire.stub.Generate(ask(token_ids=pb.TokenIds(ids=b" \n\t ")))
        assert answer.text == by_ids.text
        assert answer.summary.usage.prompt_tokens == 4
        assert answer.summary.usage.output_tokens == 8


async def test_white_space_that_the_tokenizer_drops_is_no_prompt() -> None:
    class Stripping(ToyTokenizer):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            return super().encode(text.strip())

    async with serving(tokenizer=Stripping()) as wire:
        error = await status_of(wire.stub.Generate(ask(" \n\t ")))
        assert error.code() is Code.INVALID_ARGUMENT
        assert "0 tokens" in bad_fields(error)["text"]
        assert wire.service.admission.requests == 0
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8


async def test_no_tokens_at_all_is_a_prefill() -> None:
    async with serving() as wire:
        answer = await wire.stub.Generate(ask(max_tokens=0))
        assert answer.text == ""
        assert answer.summary.finish_reason == pb.FINISH_REASON_LENGTH
        assert answer.summary.usage.output_tokens == 0


async def test_without_a_number_of_tokens_the_context_ends_the_answer() -> None:
    async with serving(toy_build(context=40)) as wire:
        answer = await wire.stub.Generate(ask("ten tokens", max_tokens=None))
        assert answer.summary.usage.output_tokens == 30


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.GenerateRequest(), "prompt"),
        (ask(""), "text"),
        (ask(token_ids=pb.TokenIds()), "token_ids"),
        (ask(token_ids=pb.TokenIds(ids=[1, 257])), "token_ids.ids"),
        (ask(token_ids=pb.TokenIds(ids=[257] * 101)), "token_ids.ids"),
        (ask(chat=pb.Chat()), "chat"),
        (ask("x" * 101), "text"),
        (ask("x" * 60, max_tokens=41), "stopping.max_tokens"),
        (ask(sampling=pb.Sampling(temperature=11)), "sampling.temperature"),
        (ask(priority=16), "priority"),
    ],
)
async def test_a_callers_mistake_names_its_field(
    request_: pb.GenerateRequest, field: str
) -> None:
    async with serving(toy_build(context=100)) as wire:
        error = await status_of(wire.stub.Generate(request_))
        assert error.code() is Code.INVALID_ARGUMENT
        assert list(bad_fields(error)) == [field]
        assert field in (error.details() or "")
        messages = wire.stub.GenerateStream(request_)
        assert (await status_of(collect(messages))).code() is Code.INVALID_ARGUMENT
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8


async def test_what_never_fits_is_refused_and_the_next_is_served() -> None:
    async with serving(toy_build(pages=5)) as wire:
        error = await status_of(wire.stub.Generate(ask("x" * 15, max_tokens=7)))
        assert error.code() is Code.FAILED_PRECONDITION
        assert "21" in (error.details() or "")
        assert "20" in (error.details() or "")
        fits = await wire.stub.Generate(ask("x" * 15, max_tokens=6))
        assert fits.summary.usage.output_tokens == 6
        rest = await wire.stub.Generate(ask("x" * 15, max_tokens=None))
        assert rest.summary.usage.output_tokens == 6


async def test_a_prompt_of_five_megabytes_is_judged_by_its_tokens() -> None:
    async with serving() as wire:
        error = await status_of(wire.stub.Generate(ask("x" * 5_000_000)))
        assert error.code() is Code.INVALID_ARGUMENT
        assert "5000000" in (error.details() or "")


async def test_a_message_above_the_limit_is_refused_with_the_limit() -> None:
    async with serving(server={"max_message_bytes": 100_000}) as wire:
        error = await status_of(wire.stub.Generate(ask("x" * 150_000)))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert "100000" in (error.details() or "")


async def test_a_chat_without_a_template_is_refused_with_the_reason() -> None:
    class Untaught(ToyTokenizer):
        has_chat_template = False

        def chat(self, messages: object, **_: object) -> list[int]:
            raise NoChatTemplate("the model has no chat template")

    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content="hi")])
    async with serving(tokenizer=Untaught()) as wire:
        error = await status_of(wire.stub.Generate(ask(chat=chat)))
        assert error.code() is Code.FAILED_PRECONDITION
        assert "template" in (error.details() or "")


async def test_a_template_with_much_to_complain_of_is_heard_all_the_same() -> None:
    class Wordy(ToyTokenizer):
        def chat(self, messages: object, **_: object) -> list[int]:
            raise ChatTemplateError("気" * 10_000)

    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content="hi")])
    async with serving(tokenizer=Wordy()) as wire:
        error = await status_of(wire.stub.Generate(ask(chat=chat)))
        assert error.code() is Code.INVALID_ARGUMENT
        assert bad_fields(error)["chat"].startswith("気")


async def test_tokenize_says_what_generate_computes() -> None:
    async with serving() as wire:
        chat = pb.Chat(messages=[pb.ChatMessage(role="user", content="hi")])
        tokens = (await wire.stub.Tokenize(pb.TokenizeRequest(chat=chat))).token_ids
        by_chat = await wire.stub.Generate(ask(chat=chat))
        by_ids = await wire.stub.Generate(ask(token_ids=pb.TokenIds(ids=tokens)))
        assert by_chat.text == by_ids.text
        text = (await wire.stub.Detokenize(pb.DetokenizeRequest(token_ids=tokens))).text
        assert (await wire.stub.Tokenize(pb.TokenizeRequest(text=text))).token_ids == tokens


async def test_what_cannot_be_tokenised_is_the_callers_mistake() -> None:
    async with serving() as wire:
        for call in (
            wire.stub.Tokenize(pb.TokenizeRequest()),
            wire.stub.Tokenize(pb.TokenizeRequest(chat=pb.Chat())),
            wire.stub.Detokenize(pb.DetokenizeRequest(token_ids=[300])),
            wire.stub.Detokenize(pb.DetokenizeRequest(token_ids=[1] * 65_537)),
        ):
            error = await status_of(call)
            assert error.code() is Code.INVALID_ARGUMENT
            assert bad_fields(error)


async def test_tokens_that_the_model_lacks_are_refused_before_they_reach_it() -> None:
    class Larger(ToyTokenizer):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            return [*super().encode(text), 257]

    async with serving(tokenizer=Larger()) as wire:
        error = await status_of(wire.stub.Generate(ask()))
        assert error.code() is Code.INVALID_ARGUMENT
        assert "257" in bad_fields(error)["text"]
        ids = pb.TokenIds(ids=[1, 2])
        assert (await wire.stub.Generate(ask(token_ids=ids))).summary.usage.output_tokens == 8


async def test_an_end_that_the_tokenizer_alone_names_ends_an_answer() -> None:
    async with serving() as wire:
        whole = await wire.stub.Generate(ask(max_tokens=10, output=pb.Output(token_ids=True)))
    end = whole.token_ids[3]
    assert end not in whole.token_ids[:3]

    class Ending(ToyTokenizer):
        eos_ids = (end, 999)  # the model has no such token

    async with serving(tokenizer=Ending()) as wire:
        summary = (await wire.stub.Generate(ask(max_tokens=10, ignore_eos=False))).summary
        assert (summary.stop_token_id, summary.usage.output_tokens) == (end, 4)
        summary = (await wire.stub.Generate(ask(max_tokens=10))).summary
        assert summary.usage.output_tokens == 10
        found = await wire.stub.GetModelInfo(pb.GetModelInfoRequest())
        assert list(found.eos_token_ids) == [256, end]


async def test_a_tenant_may_come_as_metadata() -> None:
    async with serving(toy_build(step_s=0.005)) as wire:
        metadata = (("x-walkway-tenant", "by header"),)
        call = wire.stub.GenerateStream(ask(max_tokens=4000), metadata=metadata)
        await first_message(call)
        found = await wire.admin.ListRequests(admin_pb2.ListRequestsRequest())
        assert [r.tenant for r in found.requests] == ["by header"]
        call.cancel()
        too_long = (("x-walkway-tenant", "x" * 129),)
        error = await status_of(wire.stub.Generate(ask(), metadata=too_long))
        assert list(bad_fields(error)) == ["x-walkway-tenant"]
        await wire.settled()


async def test_the_model_is_described() -> None:
    async with serving() as wire:
        found = await wire.stub.GetModelInfo(pb.GetModelInfoRequest())
        assert (found.model, found.vocab_size, found.kv_pages) == ("toy", 257, 4095)
        assert found.temperature == 1.0
        assert found.attention_reason
        assert wire.gauge("kv_pages", state="free") == 4095


async def test_health_knows_the_server_and_the_service_and_nobody_else() -> None:
    async with serving() as wire:
        serving_ = health_pb2.HealthCheckResponse.SERVING
        assert await health_of(wire) == await health_of(wire, SERVICE) == serving_
        assert (await status_of(health_of(wire, "other"))).code() is Code.NOT_FOUND


async def test_reflection_lists_the_services() -> None:
    async with serving() as wire:
        stub = reflection_pb2_grpc.ServerReflectionStub(wire.channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        call = stub.ServerReflectionInfo(iter([request]))
        answers = [answer async for answer in call]
        names = {s.name for s in answers[0].list_services_response.service}
        assert {SERVICE, "grpc.health.v1.Health"} <= names


async def test_an_error_without_details_of_its_own_has_none() -> None:
    async with serving() as wire:
        stream = wire.stub.GenerateStream(ask(max_tokens=3000, request_id="mine"))
        await first_message(stream)
        error = await status_of(wire.stub.Generate(ask(request_id="mine")))
        assert not details(error).details
        stream.cancel()
