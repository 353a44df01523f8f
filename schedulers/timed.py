"""One step of `deadline`: who computes, in which order, and who is preempted for it."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from math import inf

from schedulers.aged import AgedShare
from schedulers.draft import Draft
from schedulers.eviction import Evictions, Way
from schedulers.guard import Guard, GuardedRunning
from schedulers.hopeless import Hopeless
from schedulers.interface import Cause, Eviction, RequestId, RequestView, Snapshot
from schedulers.order import share
from schedulers.outlook import Outlook
from schedulers.preempt import make_room
from schedulers.running import Running

MAX_SEEN = 256  # that wait, in one plan; the requests behind wait for the next
MAX_SHORT = 16  # that find no pages; smaller ones behind them may
AT_RISK = 0.25  # of its time is left beyond what it needs: it waits for a row no longer
FAVOURED, TIMED, PATIENT, LOST = range(4)

Place = tuple[int, float]


def is_timed(view: RequestView) -> bool:
    """Whether a time is still ahead by which `view` has to be there."""
    if view.deadline_s is not None:
        return True
    return view.first_token_deadline_s is not None and not view.output_tokens


class TimedStep:
    """A plan while it is made. `tried` are those that were let in though they will probably be
    late; it is added to. `preempting`: how, and how often those without a deadline may be."""

    def __init__(
        self,
        snap: Snapshot,
        outlook: Outlook,
        favoured: AgedShare,
        tried: set[RequestId],
        preempting: tuple[Way, int],
    ) -> None:
        way, self._most = preempting
        self.draft = Draft(snap)
        self.guard, self._tried = Guard(snap, outlook, tried), tried
        self._snap, self._outlook, self._favoured = snap, outlook, favoured
        self._how = Evictions(way, snap)
        self._running = GuardedRunning(snap, self.draft, self._how, self.place, self._may_move)
        self._doubtful: list[RequestView] = []
        self._short = 0

    def fill(
        self,
        timed: Iterable[RequestView],
        patient: Iterable[RequestView],
        hopeless: Hopeless,
    ) -> None:
        """Grant decode rows, then chunks and those that wait, each in its order."""
        waiting = chain(self._not_late(timed, hopeless), self._try(self._doubtful), patient)
        candidates = self._favoured.first(self._snap, waiting)
        share(self._snap, self.draft, self._running, candidates, self.place, self._join)

    def fall_back(self, candidates: Iterable[RequestView]) -> None:
        """Something has to be computed: chunks, lost ones too, or the first that fits."""
        running = sorted(self._snap.running.values(), key=self.place)
        anyhow = Running(self._snap, self.draft, self._how, self.place)
        for view in running:
            anyhow.move(view)
        for view in candidates:
            if not self.draft.is_empty:
                return
            if view.id not in self.draft.refused:
                self.draft.admit(view)

    def place(self, view: RequestView) -> Place:
        """In which order requests compute; from the end on they give their pages."""
        if self._favoured.has(view):
            return FAVOURED, view.id
        if view.id in self.guard.lost:
            return LOST, 0.0
        if not is_timed(view):
            return PATIENT, view.id
        return TIMED, self._outlook.work_s(view, view.known - view.computed)

    def _may_move(self, view: RequestView) -> bool:
        """Whether a chunk of a prompt is computed now; those that are lost have none."""
        pending = view.known - view.computed
        piece_s = self._outlook.piece_s(view, pending, self.draft.budget)
        makes_it = view.id not in self.guard.lost and self.guard.lets(piece_s)
        if makes_it or self._favoured.is_first(view):
            self.guard.spent_s += piece_s
            return True
        return False

    def _not_late(
        self, timed: Iterable[RequestView], hopeless: Hopeless
    ) -> Iterator[RequestView]:
        """Those that make it at the pace of late, in order. One that does so only if its answer
        is short, as its deadline may say, keeps its place, but holds up none once it runs.
        Others are doubtful."""
        outlook = self._outlook
        for view in islice(timed, MAX_SEEN):
            if hopeless.has(self._snap, view):
                continue
            if not self._is_late(view, outlook.rest(view)):
                yield view
            elif not self._is_late(view, outlook.least_rest(view)):
                yield from self._try([view])
            else:
                self._doubtful.append(view)

    def _try(self, doubtful: Iterable[RequestView]) -> Iterator[RequestView]:
        """Requests that will probably be late, while there is much more room than they take."""
        for view in doubtful:
            yield view
            if view.id in self.draft.tokens:
                self._tried.add(view.id)

    def _is_late(self, view: RequestView, rest: int) -> bool:
        """At the pace of late, with `rest` tokens to come. Asks the cache only where that
        decides."""
        outlook, step_s = self._outlook, self._outlook.step_s
        uncached_s = outlook.prefill_s(view, view.known - view.computed)
        if outlook.spare_s(view, uncached_s, step_s, rest) >= 0:
            return False
        if outlook.spare_s(view, 0.0, step_s, rest) < 0:
            return True
        prefill_s = outlook.prefill_s(view, self._snap.pending(view))
        return outlook.spare_s(view, prefill_s, step_s, rest) < 0

    def _join(self, view: RequestView) -> bool:
        """Whether the next in order may try."""
        draft, is_favoured = self.draft, self._favoured.is_first(view)
        if self._short and not is_timed(view):
            return False
        if draft.rows <= 0 and not self._victims(view):
            return False
        piece_s = self._outlook.piece_s(view, self._snap.pending(view), draft.budget)
        if not (is_favoured or self.guard.lets(piece_s)):
            return False
        if not (draft.admit(view) or self._preempt(view)):
            self._short += 1
            return not is_favoured and is_timed(view) and self._short < MAX_SHORT
        self.guard.spent_s += piece_s
        return True

    def _victims(self, view: RequestView) -> list[RequestView]:
        """Those that are preempted for `view`, the first ones first."""
        if not is_timed(view) and not self._favoured.is_first(view):
            return []
        running, gone = self._snap.running, self.draft.evicted
        lost = [other for other in self.guard.lost.values() if other.id not in gone]
        if not is_timed(view) or not self._is_at_risk(view):
            return lost
        patient = [
            other
            for other in running.values()
            if not is_timed(other)
            and other.preemptions < self._most
            and not self._favoured.has(other)
            and other.id not in gone
        ]
        return lost + sorted(patient, key=self.place, reverse=True)

    def _is_at_risk(self, view: RequestView) -> bool:
        outlook = self._outlook
        prefill_s = outlook.prefill_s(view, view.known - view.computed)
        spare_s = outlook.spare_s(view, prefill_s, outlook.step_s)
        ends_s = view.deadline_s or view.first_token_deadline_s or inf
        return 0 <= spare_s < AT_RISK * (ends_s - view.arrival_s)

    def _preempt(self, view: RequestView) -> bool:
        def preempt(other: RequestView) -> Eviction:
            return self._how(other, Cause.DEADLINE)

        made = make_room(self.draft, view, self._victims(view), preempt)
        return made and self.draft.admit(view) > 0
