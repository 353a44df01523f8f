"""Far more at once than the pool holds, answered by computing again or by swapping."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bench.overload.asks import Ask, Mix
from bench.overload.client import when_due
from bench.overload.counters import counters
from bench.overload.figures import done, share, speed, total_s, tpot_s, ttft_s, workings
from bench.overload.scenario import Outcome, Stand, Variant

TIMES = 4.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Answers are long beside prompts, so what was admitted outgrows the pool."""

    name: ClassVar[str] = "memory"
    title: ClassVar[str] = "swapping beside recomputing, arriving at four times the capacity"
    mix: ClassVar[Mix] = Mix(prompt=(30, 100), output=(40, 64))
    variants: ClassVar[Sequence[Variant]] = (
        Variant("swap", ("scheduler.name=swap",)),
        *(
            Variant(
                f"fcfs, {mode}", ("scheduler.name=fcfs", f"scheduler.options.eviction={mode}")
            )
            for mode in ("recompute", "swap", "auto")
        ),
    )
    headlines: ClassVar[Sequence[str]] = ("output_tokens_per_s", "recomputed_tokens")

    async def run(self, stand: Stand) -> list[Outcome]:
        rate_per_s = TIMES * stand.capacity.requests_per_s
        jobs = self.mix.arriving(stand.count(1), rate_per_s, stand.seed + 1)
        before = await counters(stand.running.metrics_url)
        replies = await when_due(stand.running.target, [Ask("any", job) for job in jobs])
        worked = await counters(stand.running.metrics_url) - before
        figures = {
            "output_tokens_per_s": speed(replies),
            "done_share": share(done(replies), replies),
            "ttft_p50_s": ttft_s(replies, 50),
            "ttft_p95_s": ttft_s(replies, 95),
            "tpot_p50_s": tpot_s(replies, 50),
            "tpot_p95_s": tpot_s(replies, 95),
            "total_p95_s": total_s(replies, 95),
        }
        return [Outcome("", figures | workings(worked), replies)]
