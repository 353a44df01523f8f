"""Few urgent requests over a load of unurgent ones that never lets up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from bench.overload.asks import Ask, Mix, by_time
from bench.overload.client import at_most, when_due
from bench.overload.counters import counters
from bench.overload.figures import (
    done,
    of_kind,
    queue_s,
    share,
    speed,
    total_s,
    ttft_s,
    workings,
)
from bench.overload.scenario import Outcome, Stand, Variant

HIGHS = 30
TIMES = 2.0
BULK_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Priority:
    """Time to first token of the urgent beside what it is on the same service before, when
    they are alone: one after another, which is the least it can be, and at the same times as
    under the load, where they meet only each other. And whether the unurgent still end."""

    name: ClassVar[str] = "priority"
    title: ClassVar[str] = "urgent requests over twice the load the service can do"
    mix: ClassVar[Mix] = Mix(prompt=(30, 120), output=(24, 64))
    high: ClassVar[Mix] = Mix(prompt=(100, 200), output=(8, 16))
    variants: ClassVar[Sequence[Variant]] = (
        Variant("priority", ("scheduler.name=priority",)),
        Variant(
            f"priority, bulk {BULK_SHARE}",
            ("scheduler.name=priority", f"scheduler.options.bulk_share={BULK_SHARE}"),
        ),
        Variant("fcfs", ("scheduler.name=fcfs",)),
    )
    headlines: ClassVar[Sequence[str]] = (
        "high_ttft_p95_ratio",
        "high_ttft_p95_over_unloaded",
        "low_total_p95_s",
    )

    async def run(self, stand: Stand) -> list[Outcome]:
        highs = self._highs(stand)
        target = stand.running.target
        idle = await at_most(target, [replace(ask, salt="idle") for ask in highs], 1)
        unloaded = await when_due(target, [replace(ask, salt="unloaded") for ask in highs])
        before = await counters(stand.running.metrics_url)
        replies = await when_due(target, by_time(highs, self._lows(stand)))
        worked = await counters(stand.running.metrics_url) - before
        high, low = of_kind(replies, "high"), of_kind(replies, "low")
        idle_s, unloaded_s, loaded_s = (ttft_s(some, 95) for some in (idle, unloaded, high))
        figures = {
            "high_idle_ttft_p95_s": idle_s,
            "high_unloaded_ttft_p95_s": unloaded_s,
            "high_ttft_p50_s": ttft_s(high, 50),
            "high_ttft_p95_s": loaded_s,
            "high_ttft_p95_ratio": loaded_s / idle_s,
            "high_ttft_p95_over_unloaded": loaded_s / unloaded_s,
            "high_queue_p95_s": queue_s(high, 95),
            "high_done_share": share(done(high), high),
            "low_done_share": share(done(low), low),
            "low_total_p95_s": total_s(low, 95),
            "output_tokens_per_s": speed(replies),
        }
        return [Outcome("", figures | workings(worked), replies)]

    def _lows(self, stand: Stand) -> list[Ask]:
        rate_per_s = TIMES * stand.capacity.requests_per_s
        jobs = self.mix.arriving(stand.count(TIMES), rate_per_s, stand.seed + 1)
        return [Ask("low", job, priority=0) for job in jobs]

    def _highs(self, stand: Stand) -> list[Ask]:
        """From when the load has filled the service to when it begins to run out."""
        from_s, until_s = 0.1 * stand.seconds, 0.8 * TIMES * stand.seconds
        rate_per_s = HIGHS / (until_s - from_s)
        jobs = self.high.arriving(HIGHS, rate_per_s, stand.seed + 2, from_s)
        return [Ask("high", job, priority=15) for job in jobs]
