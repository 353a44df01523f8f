"""What those that run get in practice: how long a token takes them, and how many they need."""

from schedulers.interface import RequestId, Snapshot

NEWEST = 0.1  # weight of the latest step
LATEST = 0.05  # and of the latest answer
LONGEST = 10.0  # times the usual: a machine that stood still says nothing of steps


class Pace:
    """Seconds from one plan to the next while requests run: a token takes so long, with the
    prefills of others. None before that was seen."""

    def __init__(self) -> None:
        self.step_s: float | None = None
        self._planned_s = 0.0

    def observe(self, snap: Snapshot) -> None:
        """Call once in every `plan`. Whoever runs was planned before, so the engine had work
        since then."""
        if snap.rebuild:
            self.step_s = None
        elif snap.running:
            seconds = snap.now_s - self._planned_s
            before_s = seconds if self.step_s is None else self.step_s
            if before_s:
                seconds = min(seconds, LONGEST * before_s)
            self.step_s = before_s + NEWEST * (seconds - before_s)
        self._planned_s = snap.now_s


class AnswerLength:
    """Output tokens of an answer that has a deadline, as they were lately: those of others may
    be of quite another kind. An answer that its deadline cut says nothing. 0 before one was
    seen."""

    def __init__(self) -> None:
        self.tokens = 0.0
        self._ran: dict[RequestId, tuple[int, float]] = {}

    def observe(self, snap: Snapshot) -> None:
        """Call once in every `plan`. Whoever ran and is nowhere now has ended since."""
        if snap.rebuild:
            self.tokens, self._ran = 0.0, {}
        for request in sorted(self._ran.keys() - snap.running.keys()):
            if request not in snap.waiting and request not in snap.swapped:
                self._ended(*self._ran[request], snap.now_s)
        self._ran = {
            view.id: (view.output_tokens, view.deadline_s)
            for view in snap.running.values()
            if view.deadline_s is not None
        }

    def _ended(self, before: int, deadline_s: float, now_s: float) -> None:
        if now_s < deadline_s:
            tokens = before + 1
            self.tokens += (LATEST if self.tokens else 1.0) * (tokens - self.tokens)
