"""Where the engine is asked things from outside: each question bears a ticket, and the
answer names it."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from service.errors import Expired, ServiceError, Unavailable
from service.messages import Inspect, Inspected, SchedulerSet, SetScheduler
from service.supervisor import EngineDown

ANSWER_S = 5.0

Question = SetScheduler | Inspect
Answer = SchedulerSet | Inspected


class Rejected(Exception):
    """The engine will not plan by this strategy, or not with these options; one line for
    people."""

    def __init__(self, why: str, in_options: bool = False) -> None:
        super().__init__(why)
        self.in_options = in_options


class Desk:
    """All on one event loop. A question that is given up stays open until its generation
    ends: an exchange may come true after whoever asked for it has left, and `on_exchange`
    is told of it either way."""

    def __init__(
        self,
        send: Callable[[Question], None],
        on_exchange: Callable[[SetScheduler], None],
        answer_s: float = ANSWER_S,
    ) -> None:
        self._send = send
        self._on_exchange = on_exchange
        self._answer_s = answer_s
        self._tickets = itertools.count(1)
        self._open: dict[int, tuple[Question, asyncio.Future[Answer]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def inspect(self, requests: bool = True) -> Inspected:
        """What the engine holds now, or only which strategy it plans by. Raises Unavailable,
        and Expired without an answer."""
        answer = await self._ask(Inspect(next(self._tickets), requests))
        assert isinstance(answer, Inspected), f"{answer} is no answer to Inspect"
        return answer

    async def exchange(self, name: str, options: dict[str, Any]) -> None:
        """Plan by another strategy from the next step on. Raises Rejected, Unavailable, and
        Expired without an answer: then the exchange may still come."""
        answer = await self._ask(SetScheduler(next(self._tickets), name, options))
        assert isinstance(answer, SchedulerSet), f"{answer} is no answer to SetScheduler"
        if answer.error is not None:
            raise Rejected(answer.error, answer.in_options)

    def answer(self, answer: Answer) -> None:
        """The engine has answered."""
        question, asked = self._open.pop(answer.ticket)
        accepted = isinstance(answer, SchedulerSet) and answer.error is None
        if accepted and isinstance(question, SetScheduler):
            self._on_exchange(question)
        if not asked.done():
            asked.set_result(answer)

    def fail_all(self, error: ServiceError) -> None:
        """The engine is gone and will answer nothing."""
        for _, asked in self._open.values():
            if not asked.done():
                asked.set_exception(error)
        self._open.clear()

    async def _ask(self, question: Question) -> Answer:
        try:
            self._send(question)
        except EngineDown as down:
            raise Unavailable(str(down), down.retry_after_s) from down
        asked: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[question.ticket] = question, asked
        try:
            async with asyncio.timeout(self._answer_s):
                return await asked
        except TimeoutError:
            raise Expired(f"the engine did not answer within {self._answer_s:g} s") from None
