"""What a scenario is: variants of a service's settings, a load, and figures of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.overload.asks import Mix
from bench.overload.capacity import Capacity
from bench.overload.client import Reply
from bench.service_process import Running


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the service: `group.field=value` settings."""

    title: str
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a scenario runs, and how large it is: load comes for `seconds`, in multiples of
    `capacity`."""

    running: Running
    capacity: Capacity
    seconds: float
    seed: int

    def count(self, times: float) -> int:
        """Requests that `times` the capacity comes to."""
        return max(1, round(times * self.capacity.requests_per_s * self.seconds))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of a load that was run, and what became of its requests. A scenario of
    several loads names each by `part`. The end of a figure's name is its unit: `_s`
    seconds, `_per_s` tokens a second, `_share` 0 to 1, `_ratio`, else a count."""

    part: str
    figures: dict[str, float]
    replies: list[Reply]


class Scenario(Protocol):
    """An overload. `mix` is its bulk: the capacity is measured and the pool is sized with
    it. `headlines` are the figures to draw."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def mix(self) -> Mix: ...

    @property
    def variants(self) -> Sequence[Variant]: ...

    @property
    def headlines(self) -> Sequence[str]: ...

    async def run(self, stand: Stand) -> list[Outcome]:
        """Put the load on a service that is up and idle."""
