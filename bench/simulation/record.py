"""One request of a simulated run. Times are seconds of the virtual clock, which starts at 0."""

from dataclasses import dataclass, field

from bench.simulation.demand import Demand
from service.messages import Finish, Receipt, RequestEvent


@dataclass(slots=True)
class Paused:
    """A time in which a request had given way; `mode` is recompute or swap."""

    from_s: float
    mode: str
    to_s: float | None = None


@dataclass(slots=True)
class Record:
    """One request, as it goes on. `stall_s` is the longest gap between two of its tokens."""

    id: int
    demand: Demand
    at_s: float
    first_s: float | None = None
    last_s: float = 0.0
    ended_s: float = 0.0
    tokens: int = 0
    stall_s: float = 0.0
    pauses: list[Paused] = field(default_factory=list)
    finish: Finish | None = None
    receipt: Receipt | None = None

    def hear(self, event: RequestEvent, now_s: float) -> None:
        """Take in a step's news."""
        if event.tokens:
            self._tokens(len(event.tokens), now_s)
        for pause in event.paused:
            self.pauses.append(Paused(self.at_s + pause.at_s, pause.mode))
        for resumed_s in event.resumed_s:
            self.pauses[-1].to_s = self.at_s + resumed_s
        if event.finish is not None:
            self.finish, self.receipt, self.ended_s = event.finish, event.receipt, now_s

    def _tokens(self, tokens: int, now_s: float) -> None:
        if self.first_s is None:
            self.first_s = now_s
        elif now_s - self.last_s > self.stall_s:
            self.stall_s = now_s - self.last_s
        self.last_s = now_s
        self.tokens += tokens

    @property
    def answered(self) -> bool:
        """Whether the caller got the whole answer."""
        return self.finish in (Finish.LENGTH, Finish.STOP, Finish.MAX_TIME)

    @property
    def first_token_met(self) -> bool:
        """Whether the first token came by its deadline."""
        wanted_s = self.demand.first_token_deadline_s
        return self.ttft_s is not None and (wanted_s is None or self.ttft_s <= wanted_s)

    @property
    def pace_met(self) -> bool:
        """Whether the whole answer came at the pace that was wanted after its first token."""
        pace = self.demand.tokens_per_second
        return self.answered and (pace is None or (self.tpot_s or 0.0) * pace <= 1.0)

    @property
    def queue_s(self) -> float | None:
        """Until it was first admitted."""
        return None if self.receipt is None else self.receipt.queue_s

    @property
    def ttft_s(self) -> float | None:
        """Until its first token."""
        return None if self.first_s is None else self.first_s - self.at_s

    @property
    def tpot_s(self) -> float | None:
        """Seconds a token after the first; None when that was all."""
        if self.first_s is None or self.tokens < 2:
            return None
        return (self.last_s - self.first_s) / (self.tokens - 1)
