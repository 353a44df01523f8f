"""Runs parts one after the other, whatever becomes of each."""

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

from bench.gpu.findings import Findings, Outcome, Skipped, State
from bench.gpu.parts import Part
from bench.gpu.place import Place

OURS = ("bench", "memory", "models", "protos", "schedulers", "service")


class Course:
    """One run of the check.

    `limit_s` is for all parts together, what the set-up takes (kernels are compiled there) not
    counted: none is started later, and the last has what is left.
    """

    def __init__(
        self,
        place: Place,
        limit_s: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._limit_s = limit_s
        self._say = say
        self._clock = clock
        self._used_s = 0.0
        self._lost = ""

    def run(self, parts: Sequence[Part]) -> Iterator[Outcome]:
        """Each part's outcome as it is known."""
        for part in parts:
            reason = self._reason_to_leave_out(part)
            if reason:
                outcome = Outcome(part.name, part.half, "left out", 0.0, Findings(), reason)
            else:
                outcome = self._run(part)
            self._say(_line(outcome))
            yield outcome

    def _reason_to_leave_out(self, part: Part) -> str:
        if self._lost:
            return self._lost
        if part.half == "speed" and not self._place.on_gpu:
            return "speed is measured on a GPU alone"
        if part.half != "set-up" and self._used_s >= self._limit_s:
            return f"{self._limit_s:g} s were over"
        return ""

    def _run(self, part: Part) -> Outcome:
        self._say(f"{part.name}: {part.about}")
        began_s = self._clock()
        budget_s = self._limit_s - self._used_s
        if self._place.on_gpu:  # a part's own is for its cases there
            budget_s = min(part.budget_s, budget_s)
        findings = Findings(
            left_s=lambda: began_s + budget_s - self._clock(),
            say=lambda line: self._say(f"  {part.name}: {line}"),
        )
        state, why, trace = self._state(part, findings)
        seconds = self._clock() - began_s
        if part.half != "set-up":
            self._used_s += seconds
        if state == "FAILED" and (error := self._place.device_error()):
            self._lost = f"the device is lost since {part.name}: {error}"
        self._place.clear()
        return Outcome(part.name, part.half, state, seconds, findings, why, trace)

    def _state(self, part: Part, findings: Findings) -> tuple[State, str, str]:
        try:
            part.check()(self._place, findings)
            self._place.sync()
        except Skipped as skipped:
            return "SKIPPED", str(skipped), ""
        except ModuleNotFoundError as error:
            name = (error.name or "").split(".")[0]
            if name in OURS or not name:
                return "FAILED", _headline(error), traceback.format_exc()
            return "SKIPPED", f"needs the package {name}", ""
        except Exception as error:
            return "FAILED", _headline(error), traceback.format_exc()
        if findings.faults:
            return "FAILED", f"{len(findings.faults)} faults: {findings.faults[0]}", ""
        return "PARTIAL" if findings.partial else "ok", "", ""


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """1 when anything FAILED; 2 when no numerics were checked, or not all for want of time;
    else 0. A gate that is not met changes nothing."""
    if any(outcome.state == "FAILED" for outcome in outcomes):
        return 1
    numerics = {o.state for o in outcomes if o.half == "correctness"}
    if numerics & {"PARTIAL", "left out"} or numerics == {"SKIPPED"}:
        return 2
    return 0


def to_stderr(line: str) -> None:
    """Progress, at once."""
    print(line, file=sys.stderr, flush=True)


def _headline(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip().splitlines()[0]


def _line(outcome: Outcome) -> str:
    tail = f" ({outcome.why})" if outcome.why else ""
    return f"{outcome.part}: {outcome.state} in {outcome.seconds:.1f} s{tail}"
