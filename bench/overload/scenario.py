"""What a scenario is: variants of a service's settings, a load, and figures of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.overload.asks import Mix
from bench.overload.capacity import Capacity
from bench.overload.client import Reply
from bench.service_process import Running

AT_ONCE = 64
POOL_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the service: `group.field=value` settings. `tells_lengths`: whether
    requests say how many tokens they need, in a scenario in which they do."""

    title: str
    settings: tuple[str, ...]
    tells_lengths: bool = True


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a scenario runs, and how large it is: load comes for `seconds`, in multiples of
    `capacity`. `tells_lengths` is the variant's."""

    running: Running
    capacity: Capacity
    seconds: float
    seed: int
    tells_lengths: bool = True

    def count(self, times: float) -> int:
        """Requests that `times` the capacity comes to."""
        return max(1, round(times * self.capacity.requests_per_s * self.seconds))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of a load that was run, and what became of its requests. A scenario of
    several loads names each by `part`. The end of a figure's name is its unit: `_s`
    seconds, `_per_s` tokens a second, `_share` 0 to 1, `_ratio` or `_over_` what
    it is a ratio to, else a count."""

    part: str
    figures: dict[str, float]
    replies: list[Reply]


class Scenario(Protocol):
    """An overload. `mix` is its bulk: the capacity is measured with it, and the pool holds
    POOL_SHARE of what AT_ONCE requests of it come to. `headlines` are the figures to draw."""

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
