"""A crowd of requests that stays as large as it is, and a runner that computes nothing: what
the planning of steps is measured under."""

import random
from dataclasses import dataclass

from models.batch import RowResult, Sampling, StepBatch, StepResult
from service.messages import Limits, Submit

PAGE_SIZE = 16
ANSWER = 250


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many run and wait. With `tight` pages those that run outgrow the pool all the
    time; else evicting is never needed. `warm_up_steps` go before what is measured: until
    answers have grown to their usual length."""

    running: int = 256
    waiting: int = 10_000
    tight: bool = False
    steps: int = 300
    warm_up_steps: int = 250
    exchanges: int = 5

    @property
    def pages(self) -> int:
        """Pages of the pool. Requests of the crowd hold 16 of their own on average."""
        return self.running * (16 if self.tight else 40) + 1


class Instant:
    """A runner whose every row says the same token at once."""

    def step(self, batch: StepBatch) -> StepResult:
        said, silent = RowResult((7,)), RowResult()
        return StepResult({row.request: said if row.samples else silent for row in batch.rows})


class Arrivals:
    """Requests of eight tenants, all priorities, most with a deadline; prompts begin alike
    within a tenant. Answers are 250 tokens on average and exponential, so ends come evenly
    from the start, one a step where 256 run. The same seed brings the same."""

    def __init__(self, seed: int = 0) -> None:
        self._draw = random.Random(seed)
        self._next = 0

    def next(self, now_s: float) -> Submit:
        draw = self._draw
        self._next += 1
        tenant = draw.randrange(8)
        own = (draw.randrange(1000, 9000) for _ in range(draw.randrange(16, 64)))
        return Submit(
            id=self._next,
            prompt=[tenant + 1] * 2 * PAGE_SIZE + list(own),
            sampling=Sampling(),
            limits=Limits(1 + round(draw.expovariate(1 / ANSWER))),
            arrival_s=now_s,
            priority=draw.randrange(16),
            tenant=f"tenant {tenant}",
            deadline_s=None if draw.random() < 0.3 else now_s + draw.uniform(5, 600),
        )
