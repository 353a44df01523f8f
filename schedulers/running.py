"""Those that run: they get their tokens first, and one that finds no page makes others
give way."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from schedulers.draft import Draft
from schedulers.interface import Cause, Eviction, Mode, RequestView, Snapshot

Key = Callable[[RequestView], Any]
GiveWay = Callable[[RequestView], Eviction]
Loss = Callable[[RequestView], float]


def by_age(view: RequestView) -> int:
    """Oldest first."""
    return view.id


def recomputing(view: RequestView) -> Eviction:
    """The victim's pages are computed again."""
    return Eviction(Mode.RECOMPUTE, Cause.PAGES)


def is_held_up(snap: Snapshot, view: RequestView) -> bool:
    """Whether `view`, which runs, gets no token in each step anyway."""
    return view.known - view.computed > 1 or len(snap.running) > snap.budget


def last_first(
    views: Iterable[RequestView], rank: Key, loss: Loss | None = None
) -> Iterator[RequestView]:
    """From the last by `rank` to the first; among equals the newest first or, with `loss`,
    the one that loses least. Asks for the loss of equals alone, when their turn comes."""
    ranked = [(rank(view), view.id, view) for view in views]
    ranked.sort(reverse=True)
    for _, group in groupby(ranked, key=itemgetter(0)):
        equals = [view for _, _, view in group]
        yield from sorted(equals, key=loss) if loss and len(equals) > 1 else equals


class Running:
    """Grants running requests their tokens. One that finds no page evicts from the end of
    `rank` on; when it is the last itself it gives way. So the first always moves. Ranks only
    when that is needed: with 256 rows it costs as much as the rest of a plan."""

    def __init__(
        self,
        snap: Snapshot,
        draft: Draft,
        give_way: GiveWay = recomputing,
        rank: Key = by_age,
        loss: Loss | None = None,
    ) -> None:
        self._running = snap.running
        self._draft = draft
        self._give_way = give_way
        self._rank = rank
        self._victims = self._last_first(loss)

    def decode(self) -> list[RequestView]:
        """Grant the decode rows. Returns those that have more to compute, by `rank`, some
        of which may have given way."""
        views: Iterable[RequestView] = map(self._running.__getitem__, self._running)
        if len(self._running) > self._draft.budget:
            views = sorted(views, key=self._rank)
        short, chunks = self._draft.decode(views)
        for view in short:
            self.move(view)
        return sorted(chunks, key=self._rank) if len(chunks) > 1 else chunks

    def move(self, view: RequestView, want: int | None = None) -> None:
        """Grant `view` what it has pending, at most `want`, or as much of it as fits."""
        draft = self._draft
        while (
            draft.allowance(view)
            and view.id not in draft.evicted
            and not draft.take(view, want)
        ):
            victim = next(self._victims)
            draft.evict(victim, self._give_way(victim))

    def _last_first(self, loss: Loss | None) -> Iterator[RequestView]:
        for view in last_first(self._running.values(), self._rank, loss):
            if view.id not in self._draft.evicted:
                yield view


def continue_running(
    snap: Snapshot, draft: Draft, give_way: GiveWay = recomputing, rank: Key = by_age
) -> None:
    """Decode rows first, then chunks; who comes first by `rank` gives way last."""
    running = Running(snap, draft, give_way, rank)
    for view in running.decode():
        running.move(view)
