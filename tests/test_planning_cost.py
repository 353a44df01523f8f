"""What a plan looks at: never all who wait. Seconds are measured by `bench.planning`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from schedulers.hopeless import MAX_REFUSED
from schedulers.interface import Plan, RequestId, RequestView, Snapshot
from tests.cores import make_core, make_submit, make_toy, step_once
from tests.strategies import EVERY, strategy

WAITING = 1500


class Counted(Mapping[RequestId, RequestView]):
    """A mapping that counts how often it is looked into."""

    def __init__(self, inner: Mapping[RequestId, RequestView]) -> None:
        self._inner = inner
        self.reads = 0

    def __getitem__(self, id: RequestId) -> RequestView:
        self.reads += 1
        return self._inner[id]

    def __iter__(self) -> Iterator[RequestId]:
        for id in self._inner:
            self.reads += 1
            yield id

    def __len__(self) -> int:
        return len(self._inner)


class Reading:
    """Plans as `inner` does and remembers how much of the queue each plan read."""

    def __init__(self, variant: str) -> None:
        self._inner = strategy(variant)
        self.Options, self.promises = self._inner.Options, self._inner.promises
        self.reads: list[int] = []

    def plan(self, snap: Snapshot) -> Plan:
        waiting = Counted(snap.waiting)
        plan = self._inner.plan(replace(snap, waiting=waiting))
        self.reads.append(waiting.reads)
        return plan


@pytest.mark.parametrize("pages", [60, 2000], ids=["tight", "ample"])
@pytest.mark.parametrize("variant", EVERY)
def test_a_plan_reads_only_as_much_of_the_queue_as_it_plans(variant: str, pages: int) -> None:
    reading = Reading(variant)
    core = make_core(pages, host=90, rows=16, budget=64, scheduler=reading, audit=None)
    toy = make_toy(core)

    def submit(id: int) -> None:
        core.submit(
            make_submit(
                id,
                [id % 9] * 5,
                max_tokens=9,
                priority=id % 16,
                tenant=f"t{id % 300}",
                deadline_s=1e6 - id if id % 2 else None,
            )
        )

    for id in range(WAITING):
        submit(id)
    for id in range(WAITING, WAITING + 30):
        submit(id)
        step_once(core, toy)
    assert max(reading.reads[1:]) <= 6 * 16


def test_a_plan_reads_no_more_of_the_hopeless_than_it_refuses() -> None:
    """Beside those that it refuses, and that leave its two queues in the next: else the crowd
    of an overload costs time in every plan."""
    reading = Reading("deadline recompute")
    core = make_core(60, rows=16, budget=64, scheduler=reading, audit=None)
    toy = make_toy(core)
    for id in range(WAITING):
        core.submit(make_submit(id, max_tokens=9, deadline_s=-1.0 - id))
    for id in range(WAITING, WAITING + 4):
        core.submit(make_submit(id, max_tokens=9))
        step_once(core, toy)
    assert max(reading.reads[1:]) <= 3 * MAX_REFUSED + 6 * 16
