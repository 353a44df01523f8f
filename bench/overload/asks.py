"""Requests of an overload: who asks, for how much, how urgently and when."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.client import request
from bench.overload.pattern import patterned
from bench.workload import Job
from protos.walkway.v1 import inference_pb2 as pb

BYTES = 256  # token ids that every model has, the toy included


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `kind` names its class in figures; `timeout_s` is the call's deadline,
    with `wants_all` the request also says that it needs every one of its tokens. After
    `leaves_s` the caller hangs up, without having told that it would."""

    kind: str
    job: Job
    priority: int = 4
    timeout_s: float | None = None
    wants_all: bool = False
    salt: str = ""
    leaves_s: float | None = None

    def encoded(self) -> bytes:
        """As it goes over the wire. The kind is the tenant."""
        message = pb.GenerateRequest.FromString(request(self.job))
        message.priority = self.priority
        message.tenant = self.kind
        message.cache_salt = self.salt
        if self.wants_all:
            message.stopping.min_tokens = self.job.max_tokens
        return message.SerializeToString()


@dataclass(frozen=True, slots=True)
class Mix:
    """How long requests are, in tokens: even between two bounds, both included."""

    prompt: tuple[int, int]
    output: tuple[int, int]

    def jobs(self, count: int, seed: int) -> list[Job]:
        """So many, all due at once; the same seed brings the same, and more of them begin
        with the fewer."""
        draw = random.Random(seed)
        return [self._job(draw) for _ in range(count)]

    def arriving(
        self, count: int, rate_per_s: float, seed: int, from_s: float = 0
    ) -> list[Job]:
        """`count` jobs, due from `from_s` on, at moments of `patterned`."""
        times = patterned(count, rate_per_s, seed)
        jobs = self.jobs(count, seed)
        return [replace(job, at_s=from_s + at_s) for job, at_s in zip(jobs, times, strict=True)]

    def _job(self, draw: random.Random) -> Job:
        prompt = tuple(draw.randrange(BYTES) for _ in range(draw.randint(*self.prompt)))
        return Job(prompt, draw.randint(*self.output))


def pages_of(job: Job, page_size: int) -> int:
    """Pages that a request comes to hold; its last token needs no slot."""
    return -(-(len(job.prompt) + job.max_tokens - 1) // page_size)


def by_time(*groups: Sequence[Ask]) -> list[Ask]:
    """All of them in the order in which they are due."""
    return sorted((ask for group in groups for ask in group), key=lambda ask: ask.job.at_s)
