"""A tenant that floods the service, and one that asks now and then."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bench.overload.asks import Ask, Mix, by_time
from bench.overload.client import when_due
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

LIGHTS = 30
TIMES = 2.0


@dataclass(frozen=True, slots=True)
class Tenants:
    """What the flood does to the light tenant's time to first token, and what it still gets
    done itself."""

    name: ClassVar[str] = "tenants"
    title: ClassVar[str] = (
        "a tenant that asks for twice what the service can do, and a light one"
    )
    mix: ClassVar[Mix] = Mix(prompt=(30, 120), output=(24, 64))
    light: ClassVar[Mix] = Mix(prompt=(30, 120), output=(16, 32))
    variants: ClassVar[Sequence[Variant]] = (
        Variant("fair", ("scheduler.name=fair",)),
        Variant("fcfs", ("scheduler.name=fcfs",)),
    )
    headlines: ClassVar[Sequence[str]] = ("light_ttft_p95_s", "flood_output_tokens_per_s")

    async def run(self, stand: Stand) -> list[Outcome]:
        before = await counters(stand.running.metrics_url)
        asks = by_time(self._flood(stand), self._light(stand))
        replies = await when_due(stand.running.target, asks)
        worked = await counters(stand.running.metrics_url) - before
        light, flood = of_kind(replies, "light"), of_kind(replies, "flood")
        figures = {
            "light_ttft_p50_s": ttft_s(light, 50),
            "light_ttft_p95_s": ttft_s(light, 95),
            "light_queue_p95_s": queue_s(light, 95),
            "light_total_p95_s": total_s(light, 95),
            "flood_ttft_p95_s": ttft_s(flood, 95),
            "flood_output_tokens_per_s": speed(flood),
            "done_share": share(done(replies), replies),
        }
        return [Outcome("", figures | workings(worked), replies)]

    def _flood(self, stand: Stand) -> list[Ask]:
        rate_per_s = TIMES * stand.capacity.requests_per_s
        jobs = self.mix.arriving(stand.count(TIMES), rate_per_s, stand.seed + 1)
        return [Ask("flood", job) for job in jobs]

    def _light(self, stand: Stand) -> list[Ask]:
        from_s, until_s = 0.1 * stand.seconds, 0.8 * TIMES * stand.seconds
        jobs = self.light.arriving(LIGHTS, LIGHTS / (until_s - from_s), stand.seed + 2, from_s)
        return [Ask("light", job) for job in jobs]
