"""Judges a GenerateRequest and turns it into the engine's `Submit`.

First `judge`, which is cheap and needs no tokens; then the prompt is tokenised elsewhere;
then `Judged.fit` holds it to context and memory. Each raises before anything was done.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from models.batch import Sampling
from protos.walkway.v1 import inference_pb2 as pb
from service.errors import (
    Cancelled,
    Expired,
    InvalidArgument,
    NeverFits,
    Overloaded,
    Violation,
)
from service.field_rules import check_fields
from service.messages import Limits, Ready, Submit

DEFAULT_PRIORITY = 4
DEFAULT_TENANT = "default"
T = TypeVar("T")

CLOCKS_DIFFER_S = 0.05
"""The caller's timer began before ours."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a call came and how long it may last; seconds of the monotonic clock."""

    at_s: float
    call_expires_s: float | None
    request_timeout_s: float | None
    queue_timeout_s: float | None

    @property
    def expires_s(self) -> float | None:
        """The call's deadline or the server's, whichever is first."""
        return _first(self.call_expires_s, _sum(self.at_s, self.request_timeout_s))

    async def in_time(self, work: Awaitable[T]) -> T:
        """Work on a prompt, for which the limits hold too. Raises Expired and Overloaded."""
        expires_s, admit_s = self.expires_s, _sum(self.at_s, self.queue_timeout_s)
        until_s = _first(expires_s, admit_s)
        try:
            async with asyncio.timeout_at(until_s):
                return await work
        except TimeoutError:
            assert until_s is not None, "only a limit raises this"
            limit_s = until_s - self.at_s
            limit = f"after {limit_s:.3f} s, the limit"
            if until_s == expires_s:
                raise Expired(f"not done {limit}") from None
            raise Overloaded(f"not admitted {limit}", limit_s) from None

    def why_over(self, now_s: float) -> Expired | Cancelled:
        """Why a call that was not taken yet is over: gRPC cancels a handler when the call's
        deadline passes, as it does when a client leaves."""
        expires_s = self.call_expires_s
        if expires_s is not None and now_s > expires_s - CLOCKS_DIFFER_S:
            return Expired("the call's deadline passed before it was taken")
        return Cancelled("the caller left before it was taken")


@dataclass(frozen=True, slots=True)
class Answering:
    """How the answer is to be given."""

    text: bool
    token_ids: bool
    logprobs: bool
    stop_strings: tuple[str, ...]
    include_stop: bool
    skip_special_tokens: bool
    scheduling_events: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """A request whose every field is in order; its prompt is not tokenised yet."""

    request: pb.GenerateRequest
    ready: Ready
    request_id: str
    tenant: str
    answering: Answering
    max_tokens: int | None
    seed: int

    def fit(self, id: int, prompt: list[int], arrival: Arrival) -> Submit:
        """The engine's request. Raises InvalidArgument for what exceeds the model's context
        or vocabulary, NeverFits for what exceeds the server's pages."""
        max_tokens = self._max_tokens(len(prompt))
        self._check_vocabulary(prompt)
        request, now_s = self.request, arrival.at_s
        wanted_s = _after(now_s, request, "deadline")
        return Submit(
            id=id,
            prompt=prompt,
            sampling=_sampling(request, self.ready, self.seed, max_tokens),
            limits=Limits(
                max_tokens=max_tokens,
                end_by_s=_after(now_s, request.stopping, "max_time"),
                expire_by_s=arrival.expires_s,
                admit_by_s=_sum(now_s, arrival.queue_timeout_s),
            ),
            arrival_s=now_s,
            priority=request.priority if request.HasField("priority") else DEFAULT_PRIORITY,
            tenant=self.tenant,
            namespace=request.cache_salt,
            deadline_s=_first(wanted_s, arrival.call_expires_s),
            first_token_deadline_s=_after(now_s, request, "first_token_deadline"),
            tokens_per_second=(
                request.tokens_per_second if request.HasField("tokens_per_second") else None
            ),
        )

    def _max_tokens(self, prompt: int) -> int:
        """Resolved: what was asked for, or what context and pages leave."""
        context, pool = self.ready.context_tokens, pool_tokens(self.ready)
        field = self.request.WhichOneof("prompt")
        if prompt == 0:
            raise _invalid(str(field), "has 0 tokens, at least 1 is needed")
        if prompt > context:
            raise _invalid(str(field), f"has {prompt} tokens, the context is {context}")
        if self.max_tokens is not None and prompt + self.max_tokens > context:
            raise _invalid(
                "stopping.max_tokens",
                f"{self.max_tokens} after a prompt of {prompt} tokens exceeds the "
                f"context of {context}",
            )
        need = prompt + max(1, self.max_tokens or 0) - 1
        if need > pool:
            raise NeverFits(f"needs {need} tokens of KV memory, the server has {pool}")
        if self.max_tokens is not None:
            return self.max_tokens
        return min(context - prompt, pool - prompt + 1)

    def _check_vocabulary(self, prompt: list[int]) -> None:
        """Some tokenizers know tokens that their model has no embedding for."""
        highest, size = max(prompt), self.ready.vocab_size
        if highest >= size:
            field = str(self.request.WhichOneof("prompt"))
            raise _invalid(
                field, f"becomes token id {highest}, the model's vocabulary is {size}"
            )


def with_end_tokens(ready: Ready, tokenizer_ends: Iterable[int]) -> Ready:
    """The same model, whose answers also end at the tokens that its tokenizer names."""
    known = [*ready.eos_ids, *(id for id in tokenizer_ends if id < ready.vocab_size)]
    return msgspec.structs.replace(ready, eos_ids=list(dict.fromkeys(known)))


def pool_pages(ready: Ready) -> int:
    """Pages that requests can use; one is scratch."""
    return ready.num_pages - 1


def pool_tokens(ready: Ready) -> int:
    """Tokens that fit these pages."""
    return pool_pages(ready) * ready.page_size


def tenant_of(request: pb.GenerateRequest, tenant_header: str) -> str:
    """Whose request it is: what the field says, else the call's metadata."""
    return request.tenant or tenant_header or DEFAULT_TENANT


def judge(request: pb.GenerateRequest, ready: Ready, tenant_header: str = "") -> Judged:
    """Check every field. `tenant_header` is the call's metadata, empty without. Raises
    InvalidArgument with all that is wrong."""
    check_fields(request, ready, tenant_header)
    sampling, stopping, output = request.sampling, request.stopping, request.output
    return Judged(
        request=request,
        ready=ready,
        request_id=request.request_id or secrets.token_hex(8),
        tenant=tenant_of(request, tenant_header),
        answering=Answering(
            text=output.text if output.HasField("text") else True,
            token_ids=output.token_ids,
            logprobs=output.HasField("logprobs"),
            stop_strings=tuple(stopping.stop_strings),
            include_stop=stopping.include_stop,
            skip_special_tokens=skips_special_tokens(output),
            scheduling_events=output.scheduling_events,
        ),
        max_tokens=stopping.max_tokens if stopping.HasField("max_tokens") else None,
        seed=sampling.seed if sampling.HasField("seed") else secrets.randbits(63),
    )


def skips_special_tokens(message: pb.Output | pb.DetokenizeRequest) -> bool:
    """Absent is true."""
    return message.skip_special_tokens if message.HasField("skip_special_tokens") else True


def _sampling(
    request: pb.GenerateRequest, ready: Ready, seed: int, max_tokens: int
) -> Sampling:
    wanted, stopping, output = request.sampling, request.stopping, request.output
    ends = () if stopping.ignore_eos else tuple(ready.eos_ids)
    return Sampling(
        temperature=_or(wanted, "temperature", ready.temperature),
        top_k=wanted.top_k,
        top_p=_or(wanted, "top_p", 1.0),
        min_p=wanted.min_p,
        repetition_penalty=_or(wanted, "repetition_penalty", 1.0),
        frequency_penalty=wanted.frequency_penalty,
        presence_penalty=wanted.presence_penalty,
        seed=seed,
        logit_bias=tuple(sorted(wanted.logit_bias.items())),
        min_tokens=min(stopping.min_tokens, max_tokens),
        stop_ids=tuple(dict.fromkeys([*ends, *stopping.stop_token_ids])),
        logprobs=output.logprobs if output.HasField("logprobs") else None,
        prompt_logprobs=output.prompt_logprobs if output.HasField("prompt_logprobs") else None,
    )


def _or(message: pb.Sampling, name: str, absent: float) -> float:
    return float(getattr(message, name)) if message.HasField(name) else absent


def _after(
    start_s: float, message: pb.GenerateRequest | pb.Stopping, name: str
) -> float | None:
    """The moment that a Duration field names; None when it is absent."""
    if not message.HasField(name):
        return None
    length = getattr(message, name)
    return start_s + float(length.seconds) + float(length.nanos) / 1e9


def _first(*moments_s: float | None) -> float | None:
    """The earliest of those that there are."""
    return min((moment_s for moment_s in moments_s if moment_s is not None), default=None)


def _sum(start_s: float, length_s: float | None) -> float | None:
    return None if length_s is None else start_s + length_s


def _invalid(field: str, description: str) -> InvalidArgument:
    return InvalidArgument([Violation(field, description)])
