"""How fast steps go in practice, with the prefills of others."""

from dataclasses import replace

from schedulers.interface import Snapshot, StepCosts

NEWEST = 0.005  # weight of the latest step, once there were many
CLOSER = 0.05  # and in how far the costs are off
LONGEST = 10.0  # times the usual: a machine that stood still says nothing of steps
MOST_OFF = 3.0  # by which the costs are corrected, either way


class Pace:
    """Seconds from one plan to the next while requests run, and how far the measured costs are
    off: the ratio of the seconds that steps took to those that the costs told."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self.step_s: float | None = None
        self._planned_s: float | None = None
        self._told_s = self._told_mean_s = self._took_mean_s = 0.0
        self._steps = 0

    def observe(self, snap: Snapshot) -> None:
        """Call once in every `plan`, first."""
        if snap.rebuild:
            self._forget()
        elif snap.running and self._planned_s is not None:
            self._took(snap.now_s - self._planned_s)
        self._planned_s = snap.now_s

    def expect(self, corrected_s: float) -> None:
        """The step that is planned takes so long by `corrected` costs."""
        self._told_s = corrected_s / self._off

    @property
    def _off(self) -> float:
        off = self._took_mean_s / self._told_mean_s if self._told_mean_s else 1.0
        return min(MOST_OFF, max(1 / MOST_OFF, off))

    def corrected(self, costs: StepCosts) -> StepCosts:
        """Costs that agree with the time that steps took."""
        off = self._off
        return replace(
            costs,
            token_s=off * costs.token_s,
            row_s=off * costs.row_s,
            step_s=off * costs.step_s,
            pair_s=off * costs.pair_s,
            context_s=off * costs.context_s,
        )

    def _took(self, seconds: float) -> None:
        if seconds <= 0:
            return
        if self.step_s is not None:
            seconds = min(seconds, LONGEST * self.step_s)
        self._steps += 1
        before_s = seconds if self.step_s is None else self.step_s
        self.step_s = before_s + max(NEWEST, 1 / self._steps) * (seconds - before_s)
        if self._told_s > 0:
            weight = max(CLOSER, 1 / self._steps)
            self._took_mean_s += weight * (seconds - self._took_mean_s)
            self._told_mean_s += weight * (self._told_s - self._told_mean_s)
