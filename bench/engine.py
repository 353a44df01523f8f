"""The engine alone: core and runner in this process, no gRPC, no front end.

    python -m bench.engine --scheduler static mixed

Prints one line of JSON when it is warm and one a workload, with the step's time split into
planning (`schedule_s`), model, sampling and the rest. Without a workload, names come on
standard input.
"""

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.samples import Answer
from bench.turns import named, own_stdout, take_turns
from bench.workload import Job
from models.batch import Sampling
from service.build import build
from service.config import load_settings
from service.engine_process import Built, spin_briefly
from service.messages import Finish, Limits, RequestEvent, Submit

WARM_UP = [Job(tuple(range(100, 228)), 4)] * 32
SAME_AS_PEERS = ("memory.prefix_cache=false",)


@dataclass(slots=True)
class Split:
    """Where a run's time went, seconds, and how many steps and rows it took."""

    steps: int = 0
    rows: int = 0
    schedule_s: float = 0.0
    model_s: float = 0.0
    sample_s: float = 0.0
    other_s: float = 0.0


class Drive:
    """Puts jobs through an engine, so many at once, one run after the other."""

    def __init__(self, built: Built) -> None:
        self._core = built.core
        self._runner = built.runner
        self._ids = itertools.count(1)
        self.split = Split()

    def run(self, jobs: Sequence[Job], at_once: int) -> list[Answer]:
        """Raises RuntimeError when a request does not end with its last token."""
        self.split = Split()
        queue = iter(jobs)
        open_: dict[int, tuple[Job, float, list[tuple[float, int]]]] = {}
        answers: list[Answer] = []
        start_s = time.monotonic()
        while self._submit(queue, open_, at_once, start_s):
            for event in self._step():
                job, sent_s, arrivals = open_[event.id]
                now_s = time.monotonic() - start_s
                if event.tokens:
                    arrivals.append((now_s, len(event.tokens)))
                if event.finish is not None:
                    _expect_length(event)
                    del open_[event.id]
                    size = len(job.prompt)
                    answers.append(Answer(sent_s, sent_s, now_s, size, tuple(arrivals)))
        spent_s = self.split.schedule_s + self.split.model_s + self.split.sample_s
        self.split.other_s = time.monotonic() - start_s - spent_s
        return answers

    def _submit(
        self,
        queue: Iterator[Job],
        open_: dict[int, tuple[Job, float, list[tuple[float, int]]]],
        at_once: int,
        start_s: float,
    ) -> bool:
        """Fill up; whether anything is open."""
        for job in itertools.islice(queue, at_once - len(open_)):
            now_s, id = time.monotonic(), next(self._ids)
            submit = Submit(id, list(job.prompt), Sampling(), Limits(job.max_tokens), now_s)
            self._core.submit(submit)
            open_[id] = (job, now_s - start_s, [])
        return bool(open_)

    def _step(self) -> list[RequestEvent]:
        began_s = time.monotonic()
        step = self._core.begin(began_s)
        self.split.schedule_s += time.monotonic() - began_s
        if step is not None:
            result = self._runner.step(step.batch)
            self._core.finish(step, result, time.monotonic())
        events, stats = self._core.take_events()
        self.split.steps += stats.steps
        self.split.rows += stats.rows
        self.split.model_s += stats.model_s
        self.split.sample_s += stats.sample_s
        return events

    def notes(self) -> dict[str, float]:
        """The split of the last run."""
        split = self.split
        return {name: getattr(split, name) for name in Split.__slots__}


def _expect_length(event: RequestEvent) -> None:
    if event.finish is not Finish.LENGTH:
        raise RuntimeError(f"request {event.id} ended with {event.finish}: {event.detail}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scheduler", default="fcfs")
    parser.add_argument("--set", action="append", default=[], metavar="GROUP.FIELD=VALUE")
    parser.add_argument("workload", nargs="*")
    options = parser.parse_args()
    say = own_stdout()
    spin_briefly()
    chosen = (*SAME_AS_PEERS, f"scheduler.name={options.scheduler}", *options.set)
    built = build(load_settings(assignments=chosen))
    drive = Drive(built)
    drive.run(WARM_UP, len(WARM_UP))
    title = f"walkway {built.ready.dtype} {options.scheduler}, engine alone"
    take_turns(title, drive.run, named(options.workload), say, drive.notes)


if __name__ == "__main__":
    main()
