"""Swapping beside compute: right whatever the streams do first, and no wait too many."""

from collections.abc import Callable, Iterable

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from memory.attention.side_copies import PlainStreams, SideCopies, streams_for

PAGES, HOST_PAGES = 6, 5


class Queue:
    """A stream that does nothing until it is told to. A step of it answers whether it could
    go on, and what it is given is done in order."""

    def __init__(self) -> None:
        self.given: list[Callable[[], bool]] = []
        self.done = 0

    def give(self, work: Callable[[], bool]) -> None:
        self.given.append(work)

    def advance(self) -> bool:
        if self.done == len(self.given) or not self.given[self.done]():
            return False
        self.done += 1
        return True


class LateMark:
    """A point in one of two queues; time is counted in copies."""

    def __init__(self, streams: "LateStreams", queue: Queue) -> None:
        self._streams, self._queue, self._at = streams, queue, len(queue.given)
        self._copies = sum(streams.sizes)

    def passed(self) -> bool:
        return self._queue.done >= self._at

    def wait(self) -> None:
        while not self.passed():
            assert self._streams.go_on(), "deadlock"

    def hold_compute(self) -> None:
        self._streams.compute.give(self.passed)

    def hold_side(self) -> None:
        self._streams.side.give(self.passed)

    def since_s(self, earlier: "LateMark") -> float:
        assert self.passed() and earlier.passed()
        return float(self._copies - earlier._copies)


class LateStreams:
    """Does nothing by itself: a test chooses what goes on, or the host waits."""

    def __init__(self) -> None:
        self.compute, self.side = Queue(), Queue()
        self.sizes: list[int] = []
        self.marks = 0
        self.side_first = True

    def mark_compute(self) -> LateMark:
        self.marks += 1
        return LateMark(self, self.compute)

    def mark_side(self) -> LateMark:
        self.marks += 1
        return LateMark(self, self.side)

    def copy(self, parts: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for source, target in parts:

            def work(source=source, target=target) -> bool:
                target.copy_(source)
                return True

            self.sizes.append(len(source))
            self.side.give(work)

    def go_on(self) -> bool:
        """One piece of work of either queue, of the other only where the first is stuck."""
        order = (self.side, self.compute) if self.side_first else (self.compute, self.side)
        return order[0].advance() or order[1].advance()

    def drain(self) -> None:
        while self.go_on():
            pass
        for queue in (self.compute, self.side):
            assert queue.done == len(queue.given), "deadlock"


def make_copies() -> tuple[SideCopies, LateStreams, torch.Tensor, torch.Tensor]:
    pool, host, streams = (
        torch.arange(PAGES),
        torch.zeros(HOST_PAGES, dtype=torch.int64),
        LateStreams(),
    )
    return SideCopies(pool, host, streams), streams, pool, host


def pages(*ids: int) -> torch.Tensor:
    return torch.tensor(ids, dtype=torch.int32)


class SwapMachine(RuleBasedStateMachine):
    """Requests that compute, go to the host and come back, over pages that are given away
    as soon as the copy was asked for. What each page will hold is known when something is
    asked for; each piece of compute checks what it reads when it is done at last."""

    def __init__(self) -> None:
        super().__init__()
        self.copies, self.streams, self.pool, self.host = make_copies()
        self.free = list(range(1, PAGES))
        self.free_host = list(range(HOST_PAGES))
        self.running: dict[int, list[int]] = {}
        self.swapped: dict[int, list[int]] = {}
        self.holds: dict[int, list[int]] = {}
        self.written = 100

    @initialize(side_first=st.booleans())
    def prefer(self, side_first: bool) -> None:
        self.streams.side_first = side_first

    @precondition(lambda self: self.free)
    @rule(data=st.data())
    def admit(self, data) -> None:
        name = self.written
        self.running[name] = self._taken(
            data, self.free, data.draw(st.integers(1, min(3, len(self.free))))
        )
        self.holds[name] = []
        self.compute(data, [name])

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def step(self, data) -> None:
        self.compute(
            data, data.draw(st.sets(st.sampled_from(sorted(self.running)), min_size=1))
        )

    def compute(self, data, names) -> None:
        """Reads all pages of the rows, and writes one of each, the rest where it is new."""
        table = [page for name in sorted(names) for page in self.running[name]]
        self.copies.before_compute(torch.tensor(table, dtype=torch.int32))
        for name in sorted(names):
            mine, before = list(self.running[name]), list(self.holds[name])
            after = before or [0] * len(mine)
            self.written += 1
            for at in (
                range(len(mine)) if not before else [data.draw(st.integers(0, len(mine) - 1))]
            ):
                after = [*after[:at], 1000 * self.written + at, *after[at + 1 :]]
            self.holds[name] = after
            self.streams.compute.give(self._kernel(name, mine, before, after))

    def _kernel(self, name, mine, before, after) -> Callable[[], bool]:
        def work() -> bool:
            if before:
                assert self.pool[mine].tolist() == before, f"request {name} read other pages"
            self.pool[mine] = torch.tensor(after)
            return True

        return work

    @precondition(lambda self: self.running or self.swapped)
    @rule(data=st.data(), out=st.booleans(), back=st.booleans())
    def swap(self, data, out: bool, back: bool) -> None:
        """Some out, then some in, in one step; pages freed by the first are given to the
        second, and host pages freed by the second are free for the next step."""
        pairs = []
        for name in self._some(data, self.running) if out else ():
            if len(self.running[name]) <= len(self.free_host):
                pairs += self._out(data, name)
        self.copies.copy_out(pairs)
        pairs = []
        for name in self._some(data, self.swapped) if back else ():
            if len(self.swapped[name]) <= len(self.free):
                pairs += self._back(data, name)
        self.copies.copy_in(pairs)

    def _some(self, data, names) -> set[int]:
        return (
            data.draw(st.sets(st.sampled_from(sorted(names)), min_size=1)) if names else set()
        )

    def _out(self, data, name) -> list[tuple[int, int]]:
        left = self.running.pop(name)
        self.swapped[name] = self._taken(data, self.free_host, len(left))
        self.free += left
        return list(zip(left, self.swapped[name], strict=True))

    def _back(self, data, name) -> list[tuple[int, int]]:
        left = self.swapped.pop(name)
        self.running[name] = self._taken(data, self.free, len(left))
        self.free_host += left
        return list(zip(left, self.running[name], strict=True))

    @precondition(lambda self: self.running or self.swapped)
    @rule(data=st.data())
    def end(self, data) -> None:
        name = data.draw(st.sampled_from(sorted([*self.running, *self.swapped])))
        self.free += self.running.pop(name, [])
        self.free_host += self.swapped.pop(name, [])

    @rule(side=st.booleans(), times=st.integers(1, 6))
    def go_on(self, side: bool, times: int) -> None:
        queue = self.streams.side if side else self.streams.compute
        for _ in range(times):
            queue.advance()

    @rule()
    def wait(self) -> None:
        self.copies.fence()
        assert self.streams.side.done == len(self.streams.side.given)
        self.copies.take_copy_s()

    @invariant()
    def nothing_is_in_two_places(self) -> None:
        owned = [page for table in self.running.values() for page in table]
        assert sorted([*owned, *self.free]) == list(range(1, PAGES))

    def teardown(self) -> None:
        self.streams.drain()
        for tables, memory in ((self.running, self.pool), (self.swapped, self.host)):
            for name, table in tables.items():
                assert memory[table].tolist() == self.holds[name]

    def _taken(self, data, free: list[int], count: int) -> list[int]:
        free.sort()
        turn = data.draw(st.integers(0, len(free) - 1))  # keeps runs, unlike a permutation
        taken = [*free[turn:], *free[:turn]][:count]
        free[:] = [page for page in free if page not in taken]
        return taken


TestSwapping = SwapMachine.TestCase
TestSwapping.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("way", ["out", "in"])
def test_a_copy_waits_for_the_compute_that_was_given_before_it_and_for_none_after(way):
    copies, streams, _, _ = make_copies()
    for _ in range(2):
        streams.compute.give(lambda: True)
    copies.copy_out([(1, 0)]) if way == "out" else copies.copy_in([(0, 1)])
    streams.compute.give(lambda: True)
    for ready in (False, False, True):
        while streams.side.advance():
            pass
        assert copied(streams) == ready
        streams.compute.advance()


def test_a_step_does_not_wait_for_copies_of_pages_it_does_not_touch():
    copies, streams, _, _ = make_copies()
    copies.copy_out([(1, 0)])
    copies.copy_in([(3, 4)])
    copies.before_compute(pages(2, 3, 5))
    assert streams.compute.given == []


@pytest.mark.parametrize(("page", "done"), [(1, 2), (5, 2), (4, 3)])
def test_a_step_waits_for_the_last_call_that_touches_it_and_for_none_after(page, done):
    copies, streams, _, _ = make_copies()
    copies.copy_out([(1, 0), (5, 3)])
    copies.copy_in([(2, 4)])
    copies.before_compute(pages(3, page))
    passed: list[bool] = []
    streams.compute.give(lambda: passed.append(True) is None)
    while not passed:
        if not streams.compute.advance():
            assert streams.side.advance()
    assert copied(streams) == done


def copied(streams: LateStreams) -> int:
    return sum(work.__name__ == "work" for work in streams.side.given[: streams.side.done])


def test_a_step_waits_for_a_run_whichever_of_its_pages_it_touches():
    for page in (2, 3, 4):
        copies, streams, _, _ = make_copies()
        copies.copy_out([(2, 0), (3, 1), (4, 2)])
        copies.before_compute(pages(page))
        assert len(streams.compute.given) == 1


def test_a_copy_that_is_done_is_not_waited_for_again():
    copies, streams, _, _ = make_copies()
    copies.copy_out([(1, 0)])
    streams.drain()
    copies.before_compute(pages(1))
    assert streams.compute.given == []


def test_adjacent_pages_are_one_copy():
    copies, streams, pool, host = make_copies()
    copies.copy_out([(2, 0), (3, 1), (5, 2), (1, 3)])
    assert streams.sizes == [2, 1, 1]
    copies.fence()
    assert host.tolist() == [2, 3, 5, 1, 0]
    copies.copy_in([(3, 4), (0, 5)])
    copies.fence()
    assert pool.tolist() == [0, 1, 2, 3, 1, 2]


def test_marks_follow_the_calls_and_not_the_pages():
    """Each is an event of the device, which costs the host about as much as a copy."""
    copies, streams, _, _ = make_copies()
    copies.copy_out([(5, 0), (3, 1), (1, 2)])
    few, streams.marks = streams.marks, 0
    copies.copy_out([(2, 4)])
    assert few == streams.marks == 3


def test_the_seconds_of_copies_are_taken_once_they_are_done():
    copies, streams, _, _ = make_copies()
    copies.copy_out([(1, 0), (3, 2)])
    copies.copy_in([(1, 4)])
    assert copies.take_copy_s() == 0
    while copied(streams) < 2:
        streams.side.advance()
    assert copies.take_copy_s() == 2
    streams.drain()
    assert copies.take_copy_s() == 1
    assert copies.take_copy_s() == 0


def test_no_pairs_ask_nothing_of_the_streams():
    copies, streams, _, _ = make_copies()
    copies.copy_out([])
    copies.copy_in([])
    copies.fence()
    assert streams.side.given == streams.compute.given == []


def test_without_a_device_copies_are_done_when_they_are_asked_for():
    streams = streams_for("cpu")
    assert isinstance(streams, PlainStreams)
    pool, host = torch.arange(6).view(3, 2), torch.zeros(2, 2, dtype=torch.int64)
    copies = SideCopies(pool, host, streams)
    copies.copy_out([(1, 0), (2, 1)])
    assert host.tolist() == [[2, 3], [4, 5]]
    copies.copy_in([(1, 0)])
    copies.before_compute(pages(0, 1))
    copies.fence()
    assert pool.tolist() == [[4, 5], [2, 3], [4, 5]]
    assert copies.take_copy_s() > 0
    assert copies.take_copy_s() == 0
