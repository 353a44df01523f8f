"""A step: what it may hold, and one in flight."""

from dataclasses import dataclass

from models.batch import StepBatch
from schedulers.interface import StepCosts
from service.request import Request

LEAST_PREFILL = 16


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What a step may hold: requests that run, and tokens, decode rows included. With
    `gap_s` running requests are to get a token that often, and prefills what is left."""

    max_rows: int
    max_tokens: int
    watermark_pages: int = 0
    gap_s: float | None = None

    def budget(
        self, running: int, costs: StepCosts, before: int = 0, context_tokens: int = 0
    ) -> int:
        """Tokens of a step while so many run, which have `context_tokens` together; `before`:
        how many tokens precede the chunk that is furthest on, each of which its tokens attend
        to.

        All that run count as decode rows though some may prefill, and all that prefill as
        that far on: that is never too much. A decode row takes from the time at its own cost
        and from the tokens left as well, so the step keeps within `gap_s` whatever the costs
        are. Beside them `LEAST_PREFILL` tokens always fit, so a prefill always moves. The time
        of swapped pages, of rows that join with a single token, and of a cached prefix that
        the first chunk behind it attends to, is not foreseen.
        """
        if self.gap_s is None or costs == StepCosts():
            return self.max_tokens
        left_s = self.gap_s - costs.step_s - costs.decode_s(running, context_tokens)
        affordable = costs.prefill_tokens(left_s, before)
        return int(min(self.max_tokens, max(affordable, running + LEAST_PREFILL)))


@dataclass(slots=True)
class Step:
    """A step in flight: the batch for the runner, and whom it touches. `swapped_in` compute
    as well. `anticipated`: a later step was planned as if this one had returned."""

    batch: StepBatch
    computing: list[Request]
    swapped_out: list[Request]
    swapped_in: list[Request]
    anticipated: bool = False

    def touched(self) -> list[Request]:
        """Everybody whose pages the step reads or writes."""
        return [*self.computing, *self.swapped_out]
