"""How much prefill a step may have, so that those that run still make it."""

from collections.abc import Callable, Set
from math import inf

from schedulers.draft import Draft
from schedulers.interface import RequestId, RequestView, Snapshot
from schedulers.outlook import Outlook
from schedulers.running import GiveWay, Key, Running

UNSURE = 4.0  # less slows the admission of short prompts, more the tokens of the others


class Guard:
    """For one plan. `room_s`: the least spare time of those that decode, if a token goes on
    taking them as long as it did lately. The prefill of a step takes at most that, so each
    admission, and each chunk of a long prompt, leaves all of them on time; what the new row
    and the prefills of others add to a step shows in the next plan.

    `lost` are those that would be late even without any prefill; they hold nothing up. Those
    that would be late by a learned length alone may have shorter answers: they let prefill
    take UNSURE times a decode step.
    """

    def __init__(self, snap: Snapshot, outlook: Outlook, tried: Set[RequestId]) -> None:
        self.room_s = inf
        self.spent_s = 0.0
        self._is_full = False
        self.lost: dict[RequestId, RequestView] = {}
        step_s, now_s, rest = outlook.step_s, snap.now_s, outlook.rest
        for view in snap.running.values():
            pending = view.known - view.computed
            if view.tokens_per_second or (pending > 1 and view.first_token_deadline_s):
                prefill_s = outlook.prefill_s(view, pending)
                spare_s = outlook.spare_s(view, prefill_s, step_s)
                is_lost = _is_lost(snap, outlook, view, prefill_s)
            elif view.deadline_s is not None:
                prefill_s = outlook.prefill_s(view, pending)
                spare_s = view.deadline_s - now_s - prefill_s - rest(view) * step_s
                is_lost = spare_s < 0 and _is_lost(snap, outlook, view, prefill_s)
            else:
                continue
            if is_lost:
                self.lost[view.id] = view
            elif pending == 1 and view.id not in tried:
                if spare_s < 0 and not outlook.is_told(view):
                    spare_s = UNSURE * outlook.decode_s
                self.room_s = min(self.room_s, spare_s)

    def lets(self, piece_s: float) -> bool:
        """Whether this much more prefill leaves all on time. Once it does not, none more is
        let in this step: what comes behind in order takes no room from what comes first."""
        self._is_full = self._is_full or piece_s > self.room_s - self.spent_s
        return not self._is_full


def _is_lost(snap: Snapshot, outlook: Outlook, view: RequestView, prefill_s: float) -> bool:
    """Whether its deadline cannot be met even without the prefill of others."""
    if view.deadline_s is None:
        return False
    needs_s = prefill_s + outlook.least_rest(view) * outlook.decode_s
    return view.deadline_s - snap.now_s < needs_s


class GuardedRunning(Running):
    """Those that run; a chunk is computed only if `may` lets it."""

    def __init__(
        self,
        snap: Snapshot,
        draft: Draft,
        give_way: GiveWay,
        rank: Key,
        may: Callable[[RequestView], bool],
    ) -> None:
        super().__init__(snap, draft, give_way, rank)
        self._may = may

    def move(self, view: RequestView, want: int | None = None) -> None:
        """Grant `view` what it has pending, or as much of it as fits, where it may have it."""
        if view.known - view.computed == 1 or self._may(view):
            super().move(view, want)
