"""What steps cost, measured as they run: for strategies that estimate."""

import numpy as np

from schedulers.interface import StepCosts
from service.step import Step

KEEP = 0.98  # of what older steps said, at each new one
KEEP_COPIES = 0.9  # and of older copies
FEW, LONGEST = 20, 10.0  # after so many steps one counts as at most so many times the expected
SETTLED, EVERY = 200, 8  # after so many steps a fit for so many: it costs as much as some rows
# Squares of a usual step's sizes, a tenth of a step in weight: what new steps do not tell
# apart stays as it was, and at the start counts as fixed cost first.
PULL = 0.1 * np.diag([1.0, 64.0**2, 8.0**2])


class CostMeter:
    """Least squares over recent steps: seconds = step_s + prefill tokens x token_s + decode
    rows x row_s, none below 0. Once enough is known, a step that copies pages tells of pages
    alone: copies may run beside it or hold it up. `token_s` stays 0 until a step has prefilled,
    `row_s` until one has decoded (after `SETTLED` steps, until the next fit)."""

    def __init__(self) -> None:
        self.costs = StepCosts()
        self._sizes = np.zeros((3, 3))
        self._times_s = np.zeros(3)
        self._found_s = np.zeros(3)
        self._copied = np.zeros(2)  # seconds, pages
        self._seen = 0

    def observe(self, step: Step, seconds: float, copy_s: float = 0.0) -> None:
        """A step took so long. `copy_s`: for its pages or for those of a step before, where
        copies outlast their step; so sums are divided, and not each by its own."""
        batch = step.batch
        pages = len(batch.swap_out) + len(batch.swap_in)
        if pages:
            self._copied = KEEP_COPIES * self._copied + (copy_s, pages)
        if batch.rows and (not pages or self._seen <= FEW):
            counts = [len(row.tokens) for row in batch.rows]
            decodes = counts.count(1)
            self._fit(sum(counts) - decodes, decodes, max(0.0, seconds - copy_s))
        step_s, token_s, row_s = self._found_s.tolist()
        copied_s, copied = self._copied.tolist()
        self.costs = StepCosts(token_s, row_s, copied_s / copied if copied else 0.0, step_s)

    def _fit(self, prefill: int, decodes: int, seconds: float) -> None:
        size = np.array((1.0, prefill, decodes))
        self._seen += 1
        if self._seen == 1:
            return  # memory is touched for the first time: it tells nothing of the others
        if self._seen > FEW:  # a machine that stood still says nothing of steps
            seconds = min(seconds, LONGEST * float(size @ self._found_s))
        self._sizes = KEEP * self._sizes + size[:, None] * size
        self._times_s = KEEP * self._times_s + size * seconds
        if self._seen > SETTLED and self._seen % EVERY:
            return
        found_s = np.linalg.solve(self._sizes + PULL, self._times_s + PULL @ self._found_s)
        self._found_s = np.maximum(found_s, 0.0)
