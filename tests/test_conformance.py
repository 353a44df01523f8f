"""The conformance kit: the built-in strategies pass, and each kind of bad one is caught."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from bench.conformance import draws, witness
from bench.conformance.breach import Breach
from bench.conformance.kit import Effort, check, plan_costs
from bench.conformance.loads import Load
from bench.conformance.search import search
from bench.conformance.steady import HOURS, cases
from bench.conformance.verdict import Report
from cli.main import app
from schedulers.interface import ALWAYS, Plan, Promise, Scheduler, Snapshot
from schedulers.registry import BUILT_IN, find
from service.build import build
from service.strategy import make_scheduler
from tests.bad_schedulers import BAD, Abandoning, Good, NoOptions, OneByOne, OverBudget
from tests.strategies import EVERY, strategy, variants
from tests.wire import ask, serving

UNDECLARED = Promise.BOUNDED_RECOMPUTE  # by the plug-in of the recipe
ROOT = Path(__file__).parent.parent
FEW = Effort(examples=20, shrinks=40, hours=0.1)
OTHERS: list[tuple[str, dict[str, Any]]] = [
    *((v, {}) for v in EVERY if strategy(v).options != strategy(v.split()[0]).options),
    *((v, {"bulk_share": 0.2}) for v in variants("priority")),
    ("priority recompute", {"bulk_share": 1.0}),
]


def asked(make: Callable[[], Scheduler], effort: Effort = FEW) -> Report:
    return check("under test", {}, make, effort)


def bad(kind: type[Good]) -> Callable[[], Scheduler]:
    return lambda: kind(NoOptions())


def only(*promises: Promise, examples: int = 20, **other: Any) -> Effort:
    return replace(FEW, only=frozenset(promises), examples=examples, **other)


def walkway(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_strategy_keeps_all_that_it_promises(name: str) -> None:
    found = find(name)
    report = asked(lambda: found(found.Options()))
    assert [verdict.why for verdict in report.broken] == []
    held = {verdict.promise for verdict in report.verdicts if verdict.held}
    assert held == found.promises
    tried = {v.promise: v.tried for v in report.verdicts if v.held}
    assert tried.pop(Promise.STEADY) == len(cases(FEW.hours))
    assert all(number >= FEW.examples for number in tried.values())


@pytest.mark.parametrize(("variant", "options"), OTHERS, ids=str)
def test_a_built_in_strategy_keeps_its_promises_with_other_options_too(
    variant: str, options: dict[str, Any]
) -> None:
    """Sieges are cheap, and in them pages run short."""
    promises = strategy(variant, **options).promises
    starvation = {Promise.NO_STARVATION}
    verdicts = [
        verdict
        for some, examples in ((starvation, 12), (promises - starvation, 2))
        for verdict in asked(
            lambda: strategy(variant, **options), only(*some, examples=examples)
        ).verdicts
        if verdict.asked
    ]
    assert [verdict.why for verdict in verdicts if not verdict.held] == []
    assert {verdict.promise for verdict in verdicts} == promises


@pytest.mark.parametrize("kind", BAD, ids=lambda kind: kind.__name__)
def test_a_broken_promise_is_found_and_named(kind: type[Good]) -> None:
    hours = HOURS if kind.breaks is Promise.STEADY else FEW.hours
    effort = only(kind.breaks, examples=200, shrinks=10, seed=1, hours=hours)
    report = asked(bad(kind), effort)
    [verdict] = report.broken
    assert verdict.promise is kind.breaks
    assert verdict.why
    assert verdict.script
    assert verdict.story


@pytest.mark.parametrize(
    ("name", "options"),
    [("priority", {"aged_share": 1e-3}), ("deadline", {"patient_share": 1e-9})],
)
def test_a_strategy_that_leaves_too_little_to_the_oldest_for_the_horizon_starves_somebody(
    name: str, options: dict[str, Any]
) -> None:
    effort = only(Promise.NO_STARVATION, examples=100, shrinks=2)
    report = asked(lambda: make_scheduler(name, options), effort)
    assert [verdict.promise for verdict in report.broken] == [Promise.NO_STARVATION]


def test_the_case_that_is_shown_is_as_small_as_it_gets() -> None:
    [verdict] = asked(bad(OneByOne), only(OneByOne.breaks, examples=100, shrinks=400)).broken
    assert [line.split(" comes")[0] for line in verdict.script[1:]] == [
        "0.000 s: 1",
        "0.000 s: 2",
    ]
    assert "each of those left out (2) could have had a token more" in verdict.why


def test_the_same_seed_gives_the_same_report() -> None:
    reports = [asked(bad(Abandoning), only(Abandoning.breaks, shrinks=10)) for _ in range(2)]
    assert reports[0].as_json() == reports[1].as_json()


def test_a_case_that_broke_once_stays_broken() -> None:
    """So a strategy that throws dice is reported and not called flaky."""
    calls: list[int] = []

    def breaks_at_the_third(case: int) -> None:
        calls.append(case)
        if len(calls) == 3:
            raise Breach(Promise.DETERMINISTIC, "this once")

    found = search(st.integers(0, 10**6), breaks_at_the_third, 50, 0, shrinks=20)
    assert (found.tried, found.case) == (3, calls[2])
    assert found.breach is not None
    assert found.breach.why == "this once"


def test_no_more_smaller_cases_are_tried_than_wanted() -> None:
    calls: list[list[int]] = []

    def breaks(case: list[int]) -> None:
        calls.append(case)
        if sum(case) > 100:
            raise Breach(Promise.LEGAL, "too much")

    found = search(st.lists(st.integers(0, 99)).map(tuple), breaks, 100, 0, shrinks=7)
    assert len(calls) == found.tried + 7
    assert sum(found.case) > 100


@settings(max_examples=60, deadline=None)
@given(draws.loads() | draws.abandoned() | draws.tight())
def test_every_request_that_is_made_up_fits_the_pool_alone(load: Load) -> None:
    slots = load.machine.pages * load.machine.page_size
    for arrival in load.arrivals:
        caller = arrival.caller
        assert caller.prompt_tokens + max(0, caller.max_tokens - 1) <= slots


def test_plans_that_break_a_rule_are_the_end_of_the_questions() -> None:
    report = asked(bad(OverBudget))
    why = {verdict.promise: verdict.why for verdict in report.verdicts if verdict.held is None}
    assert why.pop(Promise.PROGRESS) == "not to the end: legal broke first"
    assert why.pop(Promise.DETERMINISTIC) == "legal is broken: no load runs to its end"
    assert why[Promise.NO_STARVATION] == "not declared in `promises`"


def test_a_strategy_that_does_not_return_is_given_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hanging(Good):
        def answer(self, snap: Snapshot) -> Plan:
            while True:
                try:
                    pass
                except Exception:
                    continue

    monkeypatch.setattr(witness, "PATIENCE_S", 0.05)
    [verdict] = asked(bad(Hanging), only(Promise.PROGRESS, shrinks=3)).broken
    assert verdict.promise is Promise.PROGRESS
    assert "had not returned" in verdict.why


def test_planning_is_timed_with_a_full_step_and_a_long_queue() -> None:
    ample, tight = plan_costs(bad(Good), plans=4, warm_up=20)
    assert ample.running > 200
    assert tight.running > 120
    for cost in (ample, tight):
        assert cost.plans == 4
        assert 0 < cost.median_s <= cost.p99_s


def test_what_fails_only_before_a_crowd_is_told() -> None:
    """A plan that is legal in small loads and raises at 10,000 who wait."""
    said = walkway(
        *("check-scheduler", "tests.bad_schedulers:RaisesInACrowd"),
        *("--only", "legal", "--examples", "3", "--plans", "1"),
    )
    assert said.exit_code == 1
    assert "too many" in said.stdout


def test_nothing_asked_is_a_mistake() -> None:
    said = walkway(
        *("check-scheduler", "static", "--only", "no_starvation", "--plans", "0"),
    )
    assert said.exit_code == 2


def test_the_command_prints_a_table_and_the_smallest_case() -> None:
    said = walkway(
        *("check-scheduler", "tests.bad_schedulers:OverBudget"),
        *("--examples", "10", "--plans", "0"),
    )
    assert said.exit_code == 1
    lines = said.stdout.splitlines()
    assert lines[0].split() == ["promise", "asked", "held", "examples", "why"]
    assert lines[1].split()[:3] == ["legal", "yes", "NO"]
    assert "legal: 2 tokens exceed the budget of 1" in lines
    assert "  0.000 s: plan 1 computes {1: 2}" in lines


def test_the_command_answers_programs_in_json() -> None:
    said = walkway(
        *("check-scheduler", "fcfs", "--json", "--option", "eviction=swap"),
        *("--only", "legal", "--examples", "5", "--plans", "0"),
    )
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert found["options"] == {"eviction": "swap"}
    assert found["held"] is True
    legal = found["promises"][0]
    assert (legal["promise"], legal["held"], legal["examples"]) == ("legal", True, 5)
    assert found["plan_cost"] == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nonsense"], "nonsense"),
        (["fcfs", "--option", "nonsense=1"], "no option"),
        (["priority", "--option", "aged_share=-1"], "aged_share"),
        (["fcfs", "--option", "eviction"], "option=value"),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_exit_code_2(
    arguments: list[str], word: str
) -> None:
    said = walkway("check-scheduler", *arguments)
    assert said.exit_code == 2
    assert len(said.stderr.strip().splitlines()) == 1
    assert word in said.stderr


def test_every_built_in_strategy_is_listed_with_its_options() -> None:
    said = walkway("schedulers")
    assert said.exit_code == 0
    for name in BUILT_IN:
        assert f"│ {name}" in said.stdout
    assert "aged_share: float = 0.1: Part of the rows" in said.stdout
    assert ", ".join(promise.value for promise in Promise if promise in ALWAYS) in said.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip put the example plug-in: a folder of its own, nothing in the environment."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(ROOT / "tests" / "plugin", folder / "source")  # pip builds in it
    target = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*command, "--target", str(target), str(source)], check=True, timeout=120)
    return target


def outside(installed: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(installed), "COLUMNS": "160"},
        timeout=120,
    )


def test_an_installed_plug_in_is_listed_and_keeps_its_promises(installed: Path) -> None:
    listed = outside(installed, "schedulers").stdout
    assert "│ shortest_prompt" in listed
    assert "walkway-shortest 0.1.0" in listed
    assert "token_s: float = 0.01: Wait that outweighs a token." in listed
    effort = ("--examples", "10", "--plans", "0")
    said = outside(installed, "check-scheduler", "shortest_prompt", *effort)
    assert said.returncode == 0, said.stdout + said.stderr
    held = [line.split()[0] for line in said.stdout.splitlines() if " yes    yes " in line]
    assert held == [promise.value for promise in Promise if promise is not UNDECLARED]


async def test_an_installed_plug_in_serves_the_shortest_prompt_first(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(installed))
    order: list[str] = []
    async with serving(
        build,
        scheduler={"name": "shortest_prompt", "options": {"token_s": 1.0}},
        engine={"max_rows": 1},
        memory={"num_pages": 64},
    ) as wire:

        async def stream(name: str, text: str, max_tokens: int) -> None:
            async for message in wire.stub.GenerateStream(ask(text, max_tokens=max_tokens)):
                if message.text and name not in order:
                    order.append(name)

        first = asyncio.create_task(stream("running", "x", 800))
        await wire.until(lambda: order == ["running"])
        others = [stream("long", "x" * 80, 2), stream("short", "y" * 8, 2)]
        await asyncio.gather(first, *others)
    assert order == ["running", "short", "long"]


def test_the_plug_in_of_the_recipe_refuses_a_bad_option(installed: Path) -> None:
    said = outside(installed, "check-scheduler", "shortest_prompt", "--option", "token_s=-1")
    assert said.returncode == 2
    assert "must not be negative" in said.stderr


def test_the_recipe_in_the_architecture_is_the_plug_in_that_is_tested() -> None:
    source = (ROOT / "tests/plugin/walkway_shortest/__init__.py").read_text()
    code = source.split("\n\n", 1)[1]  # without its docstring
    assert code in (ROOT / "ARCHITECTURE.md").read_text()
