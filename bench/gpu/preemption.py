"""Greedy answers of the core and the runner, unpressed and in a pool far too small for them:
by strategy, with one and two steps in flight, with graphs and without.

On a GPU the products of a step sum in an order that depends on its rows, so bits may differ
and answers part where two tokens are nearly as likely. Where they part, the exact model is
asked whether they were (`bench.gpu.judge`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from bench.gpu.engine import Answers, make_core, run
from bench.gpu.findings import Findings
from bench.gpu.judge import judge
from bench.gpu.logits import Apart, rounding
from bench.gpu.made import Made, made, random_tokens, small_shape
from bench.gpu.place import Place
from bench.gpu.room import PAGE_SIZE, Room
from models.config import ModelConfig
from models.random_weights import SMOLLM2_135M
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import Scheduler
from schedulers.swap import Swap, SwapOptions

STRATEGIES: dict[str, Callable[[], Scheduler]] = {
    "recompute": lambda: FCFS(FCFSOptions("recompute")),
    "swap": lambda: Swap(SwapOptions("swap")),
    "auto": lambda: FCFS(FCFSOptions("auto")),
}


@dataclass(frozen=True, slots=True)
class Load:
    """Requests, so many tokens each; prompts differ in length."""

    requests: int
    longest_prompt: int
    max_tokens: int

    def prompts(self, config: ModelConfig) -> list[list[int]]:
        """Of noise, none a prefix of another."""
        lengths = (
            1 + (i * 37 + self.longest_prompt // 2) % self.longest_prompt
            for i in range(self.requests)
        )
        return [random_tokens(config, length, seed=i) for i, length in enumerate(lengths)]

    @property
    def pages(self) -> int:
        """That all of them together need at most."""
        return self.requests * -(-(self.longest_prompt + self.max_tokens) // PAGE_SIZE)


def check(place: Place, findings: Findings) -> None:
    config = SMOLLM2_135M if place.on_gpu else small_shape()
    load = Load(24, 60, 150) if place.on_gpu else Load(5, 16, 32)
    prompts = load.prompts(config)
    rows = load.requests
    room = Room(load.pages, load.pages, rows, step_tokens=max(64, 2 * rows))
    exact, tested = (made(place, config, kind, room) for kind in ("exact", "tested"))
    runners = [tested.runner(place.recorder(), graph_rows) for graph_rows in (0, rows)]
    core = make_core(room, STRATEGIES["recompute"]())
    unpressed = run(core, runners[0], prompts, load.max_tokens)
    judging = Judging(findings, exact, prompts, unpressed, rounding(place, exact, prompts[0]))
    small = replace(room, pages=load.pages // 4)
    for way in ways(place.quick):
        if findings.out_of_time(str(way)):
            break
        core = make_core(small, STRATEGIES[way.strategy](), way.in_flight, check=True)
        judging.judge(way, run(core, runners[way.graphs], prompts, load.max_tokens))
    judging.sum_up()


@dataclass(frozen=True, slots=True)
class Way:
    """How an answer under pressure comes about."""

    strategy: str
    graphs: bool
    in_flight: int

    def __str__(self) -> str:
        graphs = "graphs" if self.graphs else "eager"
        return f"{self.strategy}, {graphs}, {self.in_flight} in flight"


def ways(quick: bool) -> Iterator[Way]:
    """All, or each strategy one way."""
    if quick:
        for strategy, graphs, in_flight in zip(STRATEGIES, (False, True, True), (1, 2, 1)):  # noqa: B905
            yield Way(strategy, graphs, in_flight)
        return
    for strategy, graphs, in_flight in product(STRATEGIES, (False, True), (1, 2)):
        yield Way(strategy, graphs, in_flight)


class Judging:
    """Compares answers under pressure with the unpressed ones."""

    def __init__(
        self,
        findings: Findings,
        exact: Made,
        prompts: list[list[int]],
        unpressed: Answers,
        rounded: Apart,
    ) -> None:
        self._findings, self._exact = findings, exact
        self._prompts, self._unpressed = prompts, unpressed
        self._tie = rounded.tie
        self._same, self._ties, self._preemptions = [1.0], 0, 0

    def judge(self, way: Way, pressed: Answers) -> None:
        """One run; a run in which nobody gave way shows nothing."""
        findings = self._findings
        verdict = judge(
            self._exact, self._prompts, self._unpressed.tokens, pressed.tokens, self._tie
        )
        findings.expect(not verdict.wrong, f"{way}: {'; '.join(verdict.wrong[:3])}")
        findings.expect(pressed.stats.preemptions > 0, f"{way}: nobody gave way")
        moved = {
            "recompute": pressed.stats.recomputed_tokens,
            "swap": pressed.stats.swapped_pages,
            "auto": pressed.stats.recomputed_tokens + pressed.stats.swapped_pages,
        }
        findings.expect(moved[way.strategy] > 0, f"{way}: nobody gave way by it")
        self._same.append(verdict.same / len(self._prompts))
        self._ties += verdict.ties
        self._preemptions += pressed.stats.preemptions
        findings.details[str(way)] = {
            "same": verdict.same,
            "ties": verdict.ties,
            "wrong": verdict.wrong,
            "preemptions": pressed.stats.preemptions,
            "swapped_pages": pressed.stats.swapped_pages,
            "recomputed_tokens": pressed.stats.recomputed_tokens,
        }

    def sum_up(self) -> None:
        """Over all runs."""
        self._findings.figure("preemptions, all ways", self._preemptions)
        self._findings.figure("same answers, in the way with fewest", min(self._same))
        self._findings.figure("answers that part at a tie, all ways", self._ties)
