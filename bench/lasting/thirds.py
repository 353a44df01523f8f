"""What each class of requests got, in the first third of a run and in the last."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.lasting.load import LIGHT, URGENT
from bench.simulation.record import Record

CLASSES: dict[str, Callable[[Record], bool]] = {
    "all": lambda record: True,
    "urgent": lambda record: record.demand.priority == URGENT,
    "others": lambda record: record.demand.priority != URGENT,
    "light": lambda record: record.demand.tenant == LIGHT,
    "flood": lambda record: record.demand.tenant != LIGHT,
    "deadlines": lambda record: record.demand.deadline_s is not None,
}


@dataclass(frozen=True, slots=True)
class Part:
    """A class in a third. `answered` is the share of its requests that got the whole answer,
    before they left or were due; `tokens` its share of all answers' tokens."""

    requests: int
    answered: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Third:
    """Requests that arrived in a third of the time."""

    from_s: float
    until_s: float
    parts: dict[str, Part]


def thirds(records: Sequence[Record], from_s: float) -> list[Third]:
    """All three, of the time from `from_s` on."""
    width_s = (max(record.at_s for record in records) - from_s) / 3
    edges = [from_s + width_s * number for number in range(3)] + [float("inf")]
    return [_third(records, *edges[number : number + 2]) for number in range(3)]


def _third(records: Sequence[Record], from_s: float, until_s: float) -> Third:
    there = [record for record in records if from_s <= record.at_s < until_s]
    whole = sum(record.tokens for record in there)
    parts = {}
    for name, belongs in CLASSES.items():
        members = [record for record in there if belongs(record)]
        answered = sum(record.answered for record in members)
        tokens = sum(record.tokens for record in members)
        parts[name] = Part(
            len(members), answered / max(1, len(members)), tokens / max(1, whole)
        )
    return Third(from_s, until_s, parts)
