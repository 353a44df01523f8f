"""The shared option `eviction`: how a victim gives its pages back."""

from typing import Literal

from schedulers.interface import Cause, Eviction, Mode, RequestView, Snapshot

Way = Literal["recompute", "swap", "auto"]

DOC = (
    "How victims give way: `recompute` drops their pages, `swap` copies them to the host, "
    "`auto` takes what costs less time by measure, for each victim."
)


class Evictions:
    """Answers for each victim of one plan how it goes.

    `auto` compares the seconds of moving its pages out and in again with those of computing
    them again. What others hold too stays cached, so it is neither copied back nor computed
    again; what only the cache would keep is counted as lost, since pages are short. While
    one of the two costs has not been measured there is nothing to compare: the victim is
    swapped, which measures it. A victim that the host store has no room for is recomputed,
    whatever the option says.
    """

    def __init__(self, way: Way, snap: Snapshot) -> None:
        self._way = way
        self._snap = snap
        self._host_pages = snap.host_free_pages

    def __call__(self, victim: RequestView, cause: Cause = Cause.PAGES) -> Eviction:
        pages = -(-victim.computed // self._snap.page_size)
        if self._way == "recompute" or pages > self._host_pages:
            return Eviction(Mode.RECOMPUTE, cause)
        swap_s, recompute_s = None, None
        if self._way == "auto" and self._is_measured:
            swap_s, recompute_s = self._estimates_s(victim)
            if recompute_s < swap_s:
                return Eviction(Mode.RECOMPUTE, cause, swap_s, recompute_s)
        self._host_pages -= pages
        return Eviction(Mode.SWAP, cause, swap_s, recompute_s)

    def loss_s(self, victim: RequestView) -> float:
        """What evicting it would cost, seconds; 0 while that was not measured."""
        swap_s, recompute_s = self._estimates_s(victim)
        if self._way == "auto" and self._is_measured:
            return min(swap_s, recompute_s)
        return recompute_s if self._way == "recompute" else swap_s

    @property
    def _is_measured(self) -> bool:
        return self._snap.costs.page_s > 0 and self._snap.costs.prefill_s(1) > 0

    def _estimates_s(self, victim: RequestView) -> tuple[float, float]:
        """Of swapping and of recomputing."""
        snap, costs = self._snap, self._snap.costs
        pages = -(-victim.computed // snap.page_size)
        lost = min(pages, snap.memory.pages_from(victim.id))
        again = max(0, victim.computed - (pages - lost) * snap.page_size)
        again_s = costs.prefill_s(again, victim.computed - again)
        return (pages + lost) * costs.page_s, again_s
