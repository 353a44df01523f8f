"""Strategies on a load that lasts, simulated: what is asked of them there."""

from itertools import pairwise
from statistics import median

import pytest

from bench.lasting import __main__ as lasting
from bench.lasting.load import TURNS, lasting_load
from bench.lasting.thirds import CLASSES
from bench.lasting.verdict import judge
from bench.simulation.catalogue import find_profile
from bench.simulation.choice import Choice
from bench.simulation.demand import Load
from bench.simulation.engine import simulate
from bench.simulation.loads import BadLoad
from schedulers.draft import Draft
from schedulers.interface import AnswerLengths, Plan, Snapshot
from schedulers.registry import BUILT_IN
from schedulers.running import continue_running
from service.request import Request
from tests.bad_schedulers import Good, NoOptions
from tests.cores import make_submit

PROFILE = find_profile("cpu")
REQUESTS = 1500


class Tiring(Good):
    """Looks at every request that it ever admitted, and in time puts the urgent last."""

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options)
        self._admitted: dict[int, float] = {}

    def answer(self, snap: Snapshot) -> Plan:
        draft = Draft(snap)
        continue_running(snap, draft)
        looks = [self._admitted.get(request) for request in 4 * [*self._admitted]]
        sign = 1 if len(looks) > REQUESTS else -1
        joining = [*snap.swapped.values(), *snap.waiting.values()]
        joining.sort(key=lambda view: sign * view.priority)
        for view in joining:
            if draft.evicted or not draft.admit(view):
                break
            self._admitted[view.id] = snap.now_s + view.id
        return draft.plan()


@pytest.fixture(scope="module")
def load() -> Load:
    return lasting_load("sample", REQUESTS, 2.0, PROFILE)


@pytest.mark.parametrize("strategy", BUILT_IN)
def test_what_a_built_in_strategy_gives_each_class_lasts(load: Load, strategy: str) -> None:
    """Costs are told too low; `python -m bench.lasting` asks both ways, and for longer."""
    verdict = judge(load, PROFILE, strategy, cost_error=-0.3)
    assert not verdict.faults
    assert verdict.held < 200
    assert all(calls > 0 for calls in verdict.calls)
    assert all(third.parts["all"].answered > 0.05 for third in verdict.thirds)


def test_a_strategy_that_tires_hoards_and_grows_is_told_all_three(load: Load) -> None:
    faults = "\n".join(judge(load, PROFILE, f"{__name__}:Tiring", 0.0).faults)
    assert "urgent: answered fell" in faults
    assert "a plan made" in faults
    assert "are held after 1500 requests" in faults


def test_lengths_are_learned_though_most_callers_leave_before_the_end(load: Load) -> None:
    """Short answers end before their callers leave, so those that ended are short."""
    told: list[AnswerLengths] = []

    class Listening(Good):
        def answer(self, snap: Snapshot) -> Plan:
            told[:] = [snap.lengths]
            return super().answer(snap)

    choice = Choice("listening", "fcfs", wrap=lambda scheduler: Listening(NoOptions()))
    records = simulate(load, PROFILE, choice).records
    whole = sorted(demand.arrival.output_tokens for demand in load.demands)
    ended = sorted(record.tokens for record in records if record.answered)
    assert len(ended) < len(whole) / 3 and ended[len(ended) // 2] < 0.7 * median(whole)
    fresh = Request(make_submit(1, [0] * 500, max_tokens=7000, tenant="other"), 16)
    for share in (0.25, 0.5, 0.75):
        true = whole[int(share * len(whole))]
        assert told[0].quantile(fresh, share) == pytest.approx(true, rel=0.2)


def test_a_lasting_load_repeats_the_pattern_of_its_trace_and_tells_no_length(
    load: Load,
) -> None:
    times = [demand.arrival.at_s for demand in load.demands]
    assert times == sorted(times) and len(times) == REQUESTS
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps[:59] == pytest.approx(gaps[60:119])
    turn = REQUESTS // TURNS
    assert gaps[: turn - 1] == pytest.approx(gaps[-(turn - 1) :])
    assert not any(demand.told for demand in load.demands)
    half = lasting_load("sample", REQUESTS, 1.0, PROFILE).demands[-1].arrival.at_s
    assert half == pytest.approx(2 * times[-1])
    with pytest.raises(BadLoad, match="at once"):
        lasting_load("sample", TURNS, 2.0, PROFILE)


def test_the_command_names_each_class_and_says_which_strategy_does_not_hold(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--requests", "300", "--cost-error", "0.3", "--scheduler"]
    assert lasting.main([*arguments, "fcfs"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in CLASSES) and "fcfs +30%" in said
    assert max(map(len, said.splitlines())) <= 80
    assert lasting.main([*arguments, "none"]) == 2
    assert "unknown" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("--times", "-1"), ("--cost-error", "-1")])
def test_a_load_or_a_cost_of_nothing_is_refused(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        lasting.main(arguments)
    assert "is no number above" in capsys.readouterr().err
