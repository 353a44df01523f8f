"""What steps cost, measured as they run: for strategies that estimate."""

import numpy as np
from numpy.typing import NDArray

from models.batch import StepBatch
from schedulers.interface import StepCosts

Vector = NDArray[np.float64]

KEEP = 0.98  # of what older steps said, at each new one
KEEP_COPIES = 0.9  # and of older copies
FEW, LONGEST = 20, 1.5  # after FEW steps, a step counts as at most LONGEST times the expected
SETTLED, EVERY = 200, 8  # after so many steps a fit for so many: it costs as much as some rows
# Squares of a usual step's sizes, a tenth of a step in weight: what new steps do not tell
# apart stays as it was, and at the start counts as fixed cost first.
PULL = 0.1 * np.diag([1.0, 64.0**2, 8.0**2, 65536.0**2, 4096.0**2])


class CostMeter:
    """Least squares over recent steps: seconds = step_s + prefill tokens x token_s + decode
    rows x row_s + pairs x pair_s + context tokens x context_s, none below 0. Once enough is
    known, a step that copies pages tells of pages alone: copies may run at the same time or
    hold it up. `token_s` and `pair_s` stay 0 until a step has prefilled, `row_s` and
    `context_s` until one has decoded (after `SETTLED` steps, until the next fit)."""

    def __init__(self) -> None:
        self.costs = StepCosts()
        self._sizes = np.zeros((5, 5))
        self._times_s = np.zeros(5)
        self._found_s = np.zeros(5)
        self._copied = np.zeros(2)  # seconds, pages
        self._seen = 0

    def observe(self, batch: StepBatch, seconds: float, copy_s: float = 0.0) -> None:
        """A step took so long. `copy_s`: for its pages or for those of a step before, where
        copies outlast their step; so sums are divided, and not each by its own."""
        pages = len(batch.swap_out) + len(batch.swap_in)
        if pages:
            self._copied = KEEP_COPIES * self._copied + (copy_s, pages)
        if batch.rows and (not pages or self._seen <= FEW):
            self._fit(_size(batch), max(0.0, seconds - copy_s))
        step_s, token_s, row_s, pair_s, context_s = self._found_s.tolist()
        copied_s, copied = self._copied.tolist()
        page_s = copied_s / copied if copied else 0.0
        self.costs = StepCosts(token_s, row_s, page_s, step_s, pair_s, context_s)

    def _fit(self, size: Vector, seconds: float) -> None:
        self._seen += 1
        if self._seen == 1:
            return  # memory is touched for the first time: it tells nothing of the others
        if self._seen > FEW:  # a machine that stood still says nothing of steps
            seconds = min(seconds, LONGEST * float(size @ self._found_s))
        self._sizes = KEEP * self._sizes + size[:, None] * size
        self._times_s = KEEP * self._times_s + size * seconds
        if self._seen > SETTLED and self._seen % EVERY:
            return
        self._found_s = _not_negative(self._sizes + PULL, self._times_s + PULL @ self._found_s)


def _size(batch: StepBatch) -> Vector:
    """Of a step: 1, prefill tokens, decode rows, pairs of a prefill token and one that it
    attends to, and tokens that decode rows read."""
    prefill, decodes, pairs, context = 0, 0, 0, 0
    for row in batch.rows:
        count = len(row.tokens)
        if count == 1:
            decodes += 1
            context += row.start + 1
        else:
            prefill += count
            pairs += count * row.start + count * (count + 1) // 2
    return np.array((1.0, prefill, decodes, pairs, context))


def _not_negative(sizes: Vector, times_s: Vector) -> Vector:
    """Solves the normal equations. What comes out below 0 is 0, and the others are solved
    without it: cut off alone it would leave them wrong."""
    kept = np.arange(len(times_s))
    while True:
        found_s = np.linalg.solve(sizes[np.ix_(kept, kept)], times_s[kept])
        if (found_s >= 0).all():
            break
        kept = np.delete(kept, found_s.argmin())
    costs = np.zeros(len(times_s))
    costs[kept] = found_s
    return costs
