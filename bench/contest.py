"""Engines that take turns: each is a process of its own, started once."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from bench.standings import Turn, speed


@dataclass(frozen=True, slots=True)
class Contender:
    """How to start an engine that takes turns (`bench.turns`)."""

    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


class Started:
    """A contender's process."""

    def __init__(self, contender: Contender) -> None:
        self._process = subprocess.Popen(
            contender.command,
            env=os.environ | contender.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._command = " ".join(contender.command)

    def await_ready(self) -> None:
        """Before anybody's turn: one that still loads or compiles would take the machine from
        the one being measured. Raises RuntimeError when the process ends instead."""
        print(f"ready: {self._answer()['ready']}", file=sys.stderr)

    def turn(self, workload: str) -> Turn:
        """Run a workload. Raises RuntimeError when the process ends instead."""
        assert self._process.stdin
        with suppress(BrokenPipeError):  # it ended, which reading tells
            print(workload, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Turn:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"ended without an answer: {self._command}")
        answer: Turn = json.loads(line)
        return answer

    def close(self) -> None:
        """The end of its input ends it."""
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()


def measure(
    contenders: Sequence[Contender], workloads: Sequence[str], rounds: int
) -> list[Turn]:
    """All turns, in the order they were taken."""
    turns = []
    with ExitStack() as stack:
        started = []
        for contender in contenders:
            started.append(Started(contender))
            stack.callback(started[-1].close)
            started[-1].await_ready()
        for number in range(rounds):
            for workload in workloads:
                for each in started:
                    turns.append(each.turn(workload) | {"round": number})
                    print(_progress(turns[-1]), file=sys.stderr)
    return turns


def _progress(turn: Turn) -> str:
    return (
        f"round {turn['round']} {turn['workload']}: {turn['engine']} {speed(turn):.1f} tok/s "
        f"(load of the machine before: {turn['load_1m']:.1f})"
    )
