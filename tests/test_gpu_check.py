"""The GPU check's own workings with parts that do nothing, and its oracle and judge; then its
correctness half over emulated kernels."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench import gpu_check
from bench.gpu import draws, unfenced
from bench.gpu.attention_speed import layers_past
from bench.gpu.course import Course, exit_code
from bench.gpu.findings import Findings, Gate, Outcome, Skipped
from bench.gpu.judge import judge
from bench.gpu.late_copies import LateStreams
from bench.gpu.logits import apart
from bench.gpu.made import Made, random_tokens, small_shape
from bench.gpu.oracle import error, exact
from bench.gpu.parts import PARTS, Part
from bench.gpu.place import Place, cpu_place
from bench.gpu.steps import RowShape, poisoned_pool, random_step
from bench.gpu.table import table
from memory.attention.interface import KVSpec
from memory.attention.reference import ReferenceAttention
from memory.attention.side_copies import PlainStreams
from models.batch import Row
from models.device_sampling import Drawn, draw

WITH_PACKAGES = {"preemption", "served", "default_model", "throughput"}
"""Parts for which torch and FlashInfer are not enough."""

Check = Callable[[Place, Findings], None]


def make_place(**changes: object) -> Place:
    return Place(**{"device": "cpu", "device_name": "none", "on_gpu": False} | changes)


@pytest.fixture
def make_part(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Part]:
    """A part whose module is the function."""

    def make(name: str, check: Check, half: str = "correctness") -> Part:
        module = f"bench.gpu.fake_{name}"
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(check=check))
        return Part(name, half, 10.0, module, "a fake")

    return make


def fine(place: Place, findings: Findings) -> None:
    findings.expect(True, "")
    findings.figure("speed", 3.0, "GB/s", Gate(5.0, least=True))


def faulty(place: Place, findings: Findings) -> None:
    findings.expect(False, "error 0.5")


def raising(place: Place, findings: Findings) -> None:
    raise ValueError("a bad shape\nand more of it")


def skipping(place: Place, findings: Findings) -> None:
    raise Skipped("there is no file")


def hurried(place: Place, findings: Findings) -> None:
    findings.left_s = lambda: 0.0
    assert findings.out_of_time("the last case")


def needing(name: str) -> Check:
    def check(place: Place, findings: Findings) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    return check


def outcomes(parts: list[Part], place: Place | None = None, **limits: float) -> list[Outcome]:
    course = Course(place or make_place(), limits.get("limit_s", 100.0), lambda line: None)
    return list(course.run(parts))


def states(found: list[Outcome]) -> list[tuple[str, str, str]]:
    return [(outcome.part, outcome.state, outcome.why) for outcome in found]


def test_a_part_that_fails_does_not_keep_the_others_from_running(make_part) -> None:
    found = outcomes(
        [
            make_part("faulty", faulty),
            make_part("raising", raising),
            make_part("skipping", skipping),
            make_part("fine", fine),
        ]
    )
    assert states(found) == [
        ("faulty", "FAILED", "1 faults: error 0.5"),
        ("raising", "FAILED", "ValueError: a bad shape"),
        ("skipping", "SKIPPED", "there is no file"),
        ("fine", "ok", ""),
    ]
    assert "in raising" in found[1].trace


def test_a_package_that_is_missing_skips_the_part_and_a_module_of_ours_fails_it(
    make_part,
) -> None:
    found = outcomes(
        [
            make_part("theirs", needing("msgspec.json")),
            make_part("ours", needing("models.nothing")),
        ]
    )
    assert states(found)[0] == ("theirs", "SKIPPED", "needs the package msgspec")
    assert found[1].state == "FAILED"


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ([("a", fine, "correctness")], 0),
        ([("a", fine, "correctness"), ("b", skipping, "correctness")], 0),
        ([("a", fine, "correctness"), ("b", faulty, "correctness")], 1),
        ([("a", fine, "correctness"), ("b", raising, "speed")], 1),
        ([("a", skipping, "correctness")], 2),
        ([("a", fine, "speed")], 0),
        ([("a", fine, "correctness"), ("b", hurried, "correctness")], 2),
        ([("a", fine, "correctness"), ("b", hurried, "speed")], 0),
        ([("a", faulty, "correctness"), ("b", hurried, "correctness")], 1),
    ],
)
def test_the_exit_status_tells_faults_from_nothing_checked(make_part, checks, code) -> None:
    place = make_place(on_gpu=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Place, "sync", lambda self: None)
        patch.setattr(Place, "clear", lambda self: None)
        assert exit_code(outcomes([make_part(*check) for check in checks], place)) == code


def test_a_gate_that_is_not_met_is_told_and_fails_nothing(make_part) -> None:
    found = outcomes([make_part("fine", fine)])
    assert exit_code(found) == 0
    assert ">= 5: NOT MET" in table(found)


def test_no_part_starts_when_the_time_is_over_but_what_compiles_takes_none_of_it(
    make_part,
) -> None:
    now_s = [0.0]

    def slow(place: Place, findings: Findings) -> None:
        now_s[0] += 60.0

    parts = [
        make_part("compiling", slow, "set-up"),
        make_part("first", slow),
        make_part("second", slow),
    ]
    course = Course(make_place(), 50.0, lambda line: None, clock=lambda: now_s[0])
    found = list(course.run(parts))
    assert states(found) == [
        ("compiling", "ok", ""),
        ("first", "ok", ""),
        ("second", "left out", "50 s were over"),
    ]
    assert exit_code(found) == 2


def test_a_part_has_a_budget_of_its_own_on_a_gpu_alone(
    make_part, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Place, "sync", lambda self: None)
    monkeypatch.setattr(Place, "clear", lambda self: None)
    left_s: list[int] = []

    def asking(place: Place, findings: Findings) -> None:
        left_s.append(round(findings.left_s()))

    for on_gpu in (False, True):
        outcomes([make_part("asking", asking)], make_place(on_gpu=on_gpu))
    assert left_s == [100, 10]


def test_a_part_that_ran_out_of_time_is_not_told_as_whole(make_part) -> None:
    found = outcomes([make_part("hurried", hurried)])
    assert states(found) == [("hurried", "PARTIAL", "")]
    assert "out of time before the last case" in table(found)


def test_a_lost_device_ends_the_run(make_part, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "device_error", lambda self: "an illegal access")
    found = outcomes([make_part("raising", raising), make_part("fine", fine)])
    why = "the device is lost since raising: an illegal access"
    assert states(found)[1] == ("fine", "left out", why)


def test_without_a_gpu_it_says_so_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "--cpu" in told


def test_the_file_has_what_is_known_after_each_part(
    make_part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "found.json"
    seen: list[int] = []

    def reading(place: Place, findings: Findings) -> None:
        seen.append(len(json.loads(path.read_text())["parts"]))

    @contextmanager
    def nowhere(quick: bool, model: Path | None):
        yield make_place(quick=quick, model=model)

    monkeypatch.setattr(gpu_check, "cpu_place", nowhere)
    parts = [make_part("faulty", faulty), make_part("reading", reading)]
    assert gpu_check.main(["--cpu", "--out", str(path)], parts) == 1
    found = json.loads(path.read_text())
    assert seen == [1]
    assert found["exit_code"] == 1
    assert [part["faults"] for part in found["parts"]] == [["error 0.5"], []]


def test_a_bare_machine_has_what_runners_with_random_weights_need() -> None:
    """What is there: torch, numpy and FlashInfer with what that imports."""
    blocked = (
        "safetensors", "transformers", "tokenizers", "huggingface_hub", "gguf", "grpc",
        "google", "msgspec", "zmq", "pydantic", "structlog", "rich", "sortedcontainers",
    )  # fmt: skip
    parts = [part.module for part in PARTS if part.name not in WITH_PACKAGES]
    code = f"""
import importlib, sys
sys.modules.update(dict.fromkeys({blocked!r}))
for part in {parts!r}:
    importlib.import_module(part).check
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_part_has_a_check() -> None:
    assert all(callable(part.check()) for part in PARTS)


SPEC = KVSpec(2, 4, 2, 64, 4, torch.float32)
SHAPES = [RowShape(1), RowShape(9), RowShape(6, 6), RowShape(11, 3)]


def test_the_oracle_agrees_with_the_reference_over_pages() -> None:
    step = random_step(SPEC, SHAPES, 20, torch.Generator().manual_seed(1))
    backend = ReferenceAttention(SPEC)
    step.fill_past(poisoned_pool(backend, 20), 1)
    assert error(step.run(backend, 1), exact(step)) < 1e-5


def test_the_oracle_notices_a_page_in_the_wrong_place() -> None:
    step = random_step(SPEC, SHAPES, 20, torch.Generator().manual_seed(1))
    backend = ReferenceAttention(SPEC)
    pool = poisoned_pool(backend, 20)
    step.fill_past(pool, 1)
    assert error(step.run(backend, 0), exact(step)) == torch.inf  # of the poisoned layer
    one, other = step.tables[1][0], step.tables[3][0]
    pool[[one, other]] = pool[[other, one]]
    assert error(step.run(backend, 1), exact(step)) > 0.05


def test_logits_apart_count_only_choices_that_the_error_cannot_change() -> None:
    right = torch.tensor([[0.0, 5.0], [1.0, 1.1]])
    found = apart(right + torch.tensor([[0.0, 0.5], [0.5, 0.0]]), right)
    assert (found.error, found.decisive, found.wrong) == (0.5, 1, 0)
    assert apart(torch.full((2, 2), torch.nan), right).error == torch.inf


class Said:
    """A model whose logits are 0, 1, 2, ... whatever it is told."""

    def logits(self, tokens: list[int], chunk: int) -> torch.Tensor:
        return torch.arange(8.0).expand(len(tokens), 8)


def test_answers_may_part_where_rounding_decides_and_nowhere_else() -> None:
    model: Made = Said()
    prompts, expected = [[1], [2], [3], [4]], {0: [7, 5], 1: [7, 6], 2: [7, 6], 3: [7, 6]}
    found = {0: [7, 5], 1: [7, 7], 2: [7, 2], 3: [7]}
    verdict = judge(model, prompts, expected, found, tie=1.2)
    assert (verdict.same, verdict.ties) == (1, 1)
    assert [line.split(":")[0] for line in verdict.wrong] == [
        "answer 2, token 1",
        "answer 3 has 1 tokens, not 2",
    ]


def faults_of_draws(monkeypatch: pytest.MonkeyPatch, draw: Callable[..., object]) -> str:
    monkeypatch.setattr(draws, "draw", draw)
    findings = Findings()
    draws.check(make_place(), findings)
    return "; ".join(findings.faults)


@dataclass
class Process:
    """Stands for one of its own; what it runs is over when it has started, or never is."""

    target: Callable[..., None]
    args: tuple[Any, ...]
    daemon: bool
    does: str
    killed: bool = False
    own_end: int | None = None

    def start(self) -> None:
        if self.does == "ends":
            self.target(*self.args)
        elif self.does == "hangs":
            self.own_end = os.dup(self.args[-1].fileno())

    def kill(self) -> None:
        self.killed = True

    def join(self) -> None:
        if self.own_end is not None:
            os.close(self.own_end)


def test_draws_of_another_token_and_draws_that_follow_their_company_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def later(logits: torch.Tensor, rows: list[Row]) -> Drawn:
        return draw(logits, [replace(row, output=[*row.output, 11]) for row in rows])

    def crowded(logits: torch.Tensor, rows: list[Row]) -> Drawn:
        return draw(logits if len(rows) > 1 else logits + 1e-3, rows)

    assert not faults_of_draws(monkeypatch, draw)
    assert "of 8 tokens differ" in faults_of_draws(monkeypatch, later)
    assert "rows change with their company" in faults_of_draws(monkeypatch, crowded)


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("ends", "plan() over a pinned buffer that is still copied from"),
        ("hangs", "no end within 0 s"),
        ("dies", "the process died"),
    ],
)
def test_plans_without_a_fence_are_told_and_not_judged(
    monkeypatch: pytest.MonkeyPatch, does: str, told: str
) -> None:
    monkeypatch.setattr(unfenced, "PLANS", 3)
    monkeypatch.setattr(unfenced, "WAIT_S", 0.1)
    processes: list[Process] = []

    def process(**how: Any) -> Process:
        processes.append(Process(does=does, **how))
        return processes[-1]

    monkeypatch.setattr(unfenced, "SPAWN", SimpleNamespace(Pipe=Pipe, Process=process))
    findings = Findings()
    with cpu_place(quick=True, model=None) as place:
        unfenced.check(place, findings)
    assert findings.notes == [f"without a fence: {told}"]
    assert not findings.faults
    assert processes[0].killed


def test_copies_that_begin_late_are_held_up_on_their_own_stream() -> None:
    held: list[float] = []
    place = SimpleNamespace(hold=held.append)
    streams = LateStreams(PlainStreams(), place, 0.5)
    source, target = torch.ones(4), torch.zeros(4)
    streams.copy([(source, target)])
    assert held == [0.5] and torch.equal(source, target)


def test_small_steps_run_over_more_layers_than_a_cache_holds() -> None:
    assert layers_past(50 << 20, 1 << 20) == 200
    assert layers_past(50 << 20, 192 << 10) * (192 << 10) >= 4 * (50 << 20)
    assert layers_past(50 << 20, 1 << 30) == 4


def test_prompts_are_the_same_each_time() -> None:
    assert random_tokens(small_shape(), 9, 3) == random_tokens(small_shape(), 9, 3)


@pytest.mark.parametrize(
    "options", [["--quick"], pytest.param([], marks=pytest.mark.slow)], ids=["quick", "whole"]
)
def test_the_correctness_half_holds_over_emulated_kernels(
    options: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "found.json"
    code = gpu_check.main(["--cpu", *options, "--limit-s", "3600", "--out", str(path)])
    found = json.loads(path.read_text())["parts"]
    held = {part["part"]: part["state"] for part in found if part["half"] == "correctness"}
    why = [part["why"] for part in found if part["why"]]
    if held.pop("default_model") == "SKIPPED":  # quick, or the file is not there
        why = [line for line in why if line != "not quick"]
    assert set(held.values()) == {"ok"}, (held, why)
    assert held.keys() >= {"kernels", "writes", "swap", "graphs", "plans", "preemption"}
    assert code == 0
