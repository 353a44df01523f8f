"""The whole service under streaming clients on the same cores, closed loop.

    python -m bench.served --scheduler static mixed

Starts a service of its own. Prints one line of JSON when it is warm and one a workload;
recordings and pictures of each turn go to `--out`. Without a workload, names come on standard
input.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from bench.client import closed_loop
from bench.extras import plots
from bench.load import model_info
from bench.recording import Recording, save
from bench.report import report
from bench.samples import Answer
from bench.scrape import watched
from bench.service_process import Running, service
from bench.turns import leave_on_sigterm, named, own_stdout, take_turns
from bench.workload import Job

WARM_UP = [Job(tuple(range(100, 228)), 4)] * 32
SAME_AS_PEERS = ("memory.prefix_cache=false", "log.level=warning")


class Client:
    """Runs jobs against a service, and keeps a recording of each turn."""

    def __init__(self, running: Running, scheduler: str, out: Path) -> None:
        self._running = running
        self._info = model_info(running.target)
        self._name = f"{self._info.model} {self._info.dtype}, {scheduler}"
        self._scheduler = scheduler
        self._out = out
        self._notes: dict[str, float] = {}

    @property
    def title(self) -> str:
        """What is measured."""
        return f"walkway {self._info.dtype} {self._scheduler}, served"

    def run(self, jobs: Sequence[Job], at_once: int) -> list[Answer]:
        """One turn."""
        loop = closed_loop(self._running.target, jobs, at_once)
        url, page_size = self._running.metrics_url, self._info.page_size
        answers, samples = asyncio.run(watched(loop, url, page_size))
        load = f"{len(jobs)} requests, {at_once} clients"
        recording = Recording(load, self._name, answers, samples)
        found = report(recording)
        self._notes = {"waste": found.waste or 0.0, "batch": found.batch or 0.0}
        path = self._out / f"served-{self._scheduler}-{len(jobs)}.json"
        save(recording, path)
        plots().plot_recording(recording, path.with_suffix(".png"))
        return answers

    def notes(self) -> dict[str, float]:
        """Mean waste of page slots and mean batch size of the last turn."""
        return self._notes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scheduler", default="fcfs")
    parser.add_argument("--set", action="append", default=[], metavar="GROUP.FIELD=VALUE")
    parser.add_argument("--out", type=Path, default=Path("bench/out"))
    parser.add_argument("workload", nargs="*")
    options = parser.parse_args()
    leave_on_sigterm()
    say = own_stdout()
    chosen = (*SAME_AS_PEERS, f"scheduler.name={options.scheduler}", *options.set)
    with service(chosen) as running:
        asyncio.run(closed_loop(running.target, WARM_UP, len(WARM_UP)))
        client = Client(running, options.scheduler, options.out)
        take_turns(client.title, client.run, named(options.workload), say, client.notes)


if __name__ == "__main__":
    main()
