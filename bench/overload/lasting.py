"""How long a load has to come so that it outlasts what strategies reckon with."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from pydantic import TypeAdapter

from bench.overload.capacity import Capacity
from bench.overload.scenario import Variant
from schedulers.registry import find
from service.config import load_settings

TIMES = 3.0
LEAST_S = 40.0
SHARES = ("aged_share", "patient_share")


@dataclass(frozen=True, slots=True)
class Length:
    """For how long load comes, and why."""

    seconds: float
    why: str


def length_of(
    variants: Sequence[Variant], settings: Sequence[str], capacity: Capacity
) -> Length:
    """TIMES the longest horizon among the options of the strategies that run: how long a share
    of the service takes to get to one that waits, which is what a request takes on the busy
    service over the share."""
    found = [Length(LEAST_S, "no option of a strategy is longer")]
    for variant in variants:
        chosen = load_settings(None, (*settings, *variant.settings)).scheduler
        kind = TypeAdapter(find(chosen.name).Options)
        options = kind.validate_python(dict(chosen.options))
        for name in (field.name for field in fields(options)):
            horizon_s = _horizon_s(name, getattr(options, name), capacity)
            why = f"{TIMES:g} times {horizon_s:.0f} s, by {name} of {chosen.name}"
            found.append(Length(TIMES * horizon_s, why))
    return max(found, key=lambda length: length.seconds)


def _horizon_s(name: str, value: object, capacity: Capacity) -> float:
    if name not in SHARES or not isinstance(value, float) or not value:
        return 0.0
    return capacity.served_s / value
