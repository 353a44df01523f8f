"""A built-in strategy whose plans are kept, over a small core."""

from typing import Any

from models.batch import StepBatch
from models.toy import ToyRunner
from schedulers.interface import Plan, Served, Snapshot
from service.core import Core
from service.messages import Submit
from service.strategy import make_scheduler
from tests.cores import make_core, make_toy, step_once


class Watched:
    """Plans as the strategy `name` does, and remembers what it planned."""

    def __init__(self, name: str, **options: Any) -> None:
        self._inner = make_scheduler(name, options)
        self.Options, self.promises = self._inner.Options, self._inner.promises
        self.plans: list[Plan] = []
        self.served: dict[str, Served] = {}  # until the newest plan

    def plan(self, snap: Snapshot) -> Plan:
        self.served = dict(snap.served)
        self.plans.append(self._inner.plan(snap))
        return self.plans[-1]


class Scene:
    """A core under a watched strategy, driven by hand. The clock stands unless told."""

    def __init__(self, name: str, options: dict[str, Any] | None = None, **core: Any) -> None:
        self.strategy = Watched(name, **(options or {}))
        self.core: Core = make_core(scheduler=self.strategy, **core)
        self.toy: ToyRunner = make_toy(self.core)
        self.now_s = 0.0

    @property
    def plan(self) -> Plan:
        """The newest plan."""
        return self.strategy.plans[-1]

    def submit(self, *submits: Submit) -> None:
        for submit in submits:
            self.core.submit(submit)

    def step(self, *submits: Submit, after_s: float = 0.0) -> list[int]:
        """Submit, take a step, and say who computed."""
        self.submit(*submits)
        self.now_s += after_s
        batch: StepBatch | None = step_once(self.core, self.toy, self.now_s)
        return [row.request for row in batch.rows] if batch else []
