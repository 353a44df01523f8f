"""A promise that did not hold."""

from collections.abc import Iterable

from schedulers.interface import Promise


class Breach(Exception):
    """`why` in one sentence; `story` is what led there: the state and the last plans."""

    def __init__(self, promise: Promise, why: str, story: Iterable[str] = ()) -> None:
        super().__init__(f"{promise.value}: {why}")
        self.promise = promise
        self.why = why
        self.story = tuple(story)
