"""Far more at once than the pool holds, answered by computing again or by swapping."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bench.overload.asks import Ask, Mix
from bench.overload.client import when_due
from bench.overload.counters import counters
from bench.overload.figures import done, share, speed, total_s, tpot_s, ttft_s, workings
from bench.overload.scenario import AT_ONCE, Outcome, Stand, Variant

TIMES = 8.0
ROWS = f"engine.max_rows={AT_ONCE}"  # so that nothing but pages holds a request back


@dataclass(frozen=True, slots=True)
class Memory:
    """Prompts are short and answers long, so what was admitted comes to more than twice the
    pool: an admission leaves a page to each that runs, and each comes to eleven. At least as
    many requests as the pool is sized by, or a slow machine would be under no pressure.
    `swap` is `fcfs` that swaps: how far the two differ is noise."""

    name: ClassVar[str] = "memory"
    title: ClassVar[str] = "swapping beside recomputing, arriving at eight times the capacity"
    mix: ClassVar[Mix] = Mix(prompt=(8, 16), output=(152, 168))
    variants: ClassVar[Sequence[Variant]] = (
        Variant("swap", (ROWS, "scheduler.name=swap")),
        *(
            Variant(
                f"fcfs, {way}",
                (ROWS, "scheduler.name=fcfs", f"scheduler.options.eviction={way}"),
            )
            for way in ("recompute", "swap", "auto")
        ),
    )
    headlines: ClassVar[Sequence[str]] = (
        "output_tokens_per_s",
        "preempted_share",
        "recomputed_tokens",
        "swapped_pages",
    )

    async def run(self, stand: Stand) -> list[Outcome]:
        rate_per_s = TIMES * stand.capacity.requests_per_s
        count = max(AT_ONCE, stand.count(1))
        jobs = self.mix.arriving(count, rate_per_s, stand.seed + 1)
        before = await counters(stand.running.metrics_url)
        replies = await when_due(stand.running.target, [Ask("any", job) for job in jobs])
        worked = await counters(stand.running.metrics_url) - before
        preempted = [reply for reply in replies if reply.preemptions]
        figures = {
            "output_tokens_per_s": speed(replies),
            "preempted_share": share(preempted, replies),
            "done_share": share(done(replies), replies),
            "ttft_p50_s": ttft_s(replies, 50),
            "ttft_p95_s": ttft_s(replies, 95),
            "tpot_p50_s": tpot_s(replies, 50),
            "tpot_p95_s": tpot_s(replies, 95),
            "total_p95_s": total_s(replies, 95),
        }
        return [Outcome("", figures | workings(worked), replies)]
