"""As much as the service can do, and more, by callers who hang up when it takes too long."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bench.overload.asks import Ask, Mix
from bench.overload.client import when_due
from bench.overload.counters import counters
from bench.overload.figures import done, share, speed, ttft_s, workings
from bench.overload.scenario import Outcome, Stand, Variant

LOADS = (1.0, 1.5, 2.0)
PATIENCE = (2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Each call has a gRPC deadline of two to four times what such a request takes on the
    busy service without waiting for its turn, and says that it needs all of its tokens, so
    that the strategy knows how long it takes; in one variant it does not say so. Met is an
    answer in full before it; what was refused or cut is counted apart. Goodput is output
    tokens/s of the met."""

    name: ClassVar[str] = "deadlines"
    title: ClassVar[str] = "deadlines met at multiples of the load the service can do"
    mix: ClassVar[Mix] = Mix(prompt=(30, 120), output=(24, 64))
    variants: ClassVar[Sequence[Variant]] = (
        Variant("deadline", ("scheduler.name=deadline",)),
        Variant("deadline, lengths untold", ("scheduler.name=deadline",), tells_lengths=False),
        Variant("fcfs", ("scheduler.name=fcfs",)),
    )
    headlines: ClassVar[Sequence[str]] = ("met_share", "goodput_tokens_per_s")

    async def run(self, stand: Stand) -> list[Outcome]:
        return [await self._at(stand, times) for times in LOADS]

    async def _at(self, stand: Stand, times: float) -> Outcome:
        before = await counters(stand.running.metrics_url)
        replies = await when_due(stand.running.target, self._asks(stand, times))
        worked = await counters(stand.running.metrics_url) - before
        refused = [reply for reply in replies if reply.refused]
        late = [r for r in replies if r.answer.status == "DEADLINE_EXCEEDED" and not r.refused]
        lost = sum(reply.answer.output_tokens for reply in replies if not reply.done)
        figures = {
            "met_share": share(done(replies), replies),
            "refused_share": share(refused, replies),
            "late_share": share(late, replies),
            "goodput_tokens_per_s": speed(replies),
            "lost_tokens": float(lost),
            "met_ttft_p95_s": ttft_s(replies, 95),
        }
        return Outcome(f"{times:g}x", figures | workings(worked), replies)

    def _asks(self, stand: Stand, times: float) -> list[Ask]:
        draw = random.Random(stand.seed)
        rate_per_s = times * stand.capacity.requests_per_s
        jobs = self.mix.arriving(stand.count(times), rate_per_s, stand.seed + 1)
        return [
            Ask(
                "any",
                job,
                timeout_s=draw.uniform(*PATIENCE) * stand.capacity.served_s,
                wants_all=stand.tells_lengths,
                salt=f"{times:g}x",
            )
            for job in jobs
        ]
