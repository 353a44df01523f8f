"""What steps cost, measured as they run: for strategies that estimate."""

from schedulers.interface import StepCosts
from service.core import Step

NEWEST = 0.1  # weight of the latest step


class CostMeter:
    """Running averages. A step's fixed cost counts into its rows, or into its tokens when it
    has no decode row."""

    def __init__(self) -> None:
        self.costs = StepCosts()

    def observe(self, step: Step, seconds: float) -> None:
        """A step took so long."""
        counts = [len(row.tokens) for row in step.batch.rows]
        decodes = counts.count(1)
        prefill = sum(counts) - decodes
        row_s, token_s = self.costs.row_s, self.costs.token_s
        if decodes and not prefill:
            row_s = _average(row_s, seconds / decodes)
        elif prefill:
            token_s = _average(token_s, max(0.0, seconds - decodes * row_s) / prefill)
        self.costs = StepCosts(token_s, row_s, self.costs.page_s)


def _average(old: float, new: float) -> float:
    return old + NEWEST * (new - old) if old else new
