"""What became of each request, real or simulated, in the same words."""

from collections.abc import Iterable, Sequence

import msgspec

from bench.overload.client import LEFT, Reply
from bench.simulation.demand import Demand
from bench.simulation.record import Record
from service.messages import Finish

ANSWERED, REFUSED, LATE = "answered", "refused", "late"
ENDS = {Finish.REFUSED: REFUSED, Finish.EXPIRED: LATE}


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """One request. Times are seconds from the start of the run; `how` it ended is answered,
    refused, late (its caller left) or what else there was."""

    priority: int
    tenant: str
    hurried: bool
    prompt_tokens: int
    at_s: float
    first_s: float | None
    last_s: float
    ended_s: float
    output_tokens: int
    how: str

    @property
    def answered(self) -> bool:
        """In full."""
        return self.how == ANSWERED

    @property
    def ttft_s(self) -> float | None:
        """Until its first token."""
        return None if self.first_s is None else self.first_s - self.at_s

    @property
    def tpot_s(self) -> float | None:
        """Seconds a token after the first; None when that was all."""
        if self.first_s is None or self.output_tokens < 2:
            return None
        return (self.last_s - self.first_s) / (self.output_tokens - 1)

    def computed(self, from_s: float, until_s: float) -> float:
        """About how many of its tokens were computed in a stretch of time: its prompt at its
        first token, its output evenly from there to the last."""
        if self.first_s is None:
            return 0.0
        prompt = self.prompt_tokens if from_s <= self.first_s < until_s else 0
        lasted_s = self.last_s - self.first_s
        if not lasted_s:
            return prompt + (self.output_tokens if prompt else 0)
        inside_s = min(until_s, self.last_s) - max(from_s, self.first_s)
        return prompt + self.output_tokens * max(0.0, inside_s) / lasted_s


def from_replies(demands: Sequence[Demand], replies: Sequence[Reply]) -> list[Seen]:
    """As the clients of a service saw them."""
    return [_real(demand, reply) for demand, reply in zip(demands, replies, strict=True)]


def from_records(records: Iterable[Record]) -> list[Seen]:
    """As a simulated run ended."""
    return [_simulated(record) for record in records]


def _real(demand: Demand, reply: Reply) -> Seen:
    answer = reply.answer
    how = ANSWERED if reply.done else answer.status
    if answer.status in ("DEADLINE_EXCEEDED", LEFT):
        how = REFUSED if reply.refused else LATE
    first_s, last_s = None, 0.0
    if answer.arrivals:
        first_s, last_s = answer.arrivals[0][0], answer.arrivals[-1][0]
    times = (answer.due_s, first_s, last_s, answer.ended_s)
    return _seen(demand, times, answer.output_tokens, how)


def _simulated(record: Record) -> Seen:
    assert record.finish is not None, "a run ends with its last request"
    how = ANSWERED if record.answered else ENDS.get(record.finish, record.finish.value)
    times = (record.at_s, record.first_s, record.last_s, record.ended_s)
    return _seen(record.demand, times, record.tokens, how)


def _seen(
    demand: Demand, times: tuple[float, float | None, float, float], tokens: int, how: str
) -> Seen:
    return Seen(
        demand.priority,
        demand.tenant,
        demand.deadline_s is not None,
        demand.arrival.prompt_tokens,
        *times,
        tokens,
        how,
    )
