"""Looks for a case that breaks a promise, and makes it as small as it can."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from bench.conformance.breach import Breach

Case = TypeVar("Case")


@dataclass(frozen=True, slots=True)
class Search(Generic[Case]):
    """How a search ended. `breach` None: all of `tried` cases held."""

    tried: int
    case: Case | None = None
    breach: Breach | None = None


def search(
    cases: st.SearchStrategy[Case],
    ask: Callable[[Case], None],
    examples: int,
    random_seed: int,
    shrinks: int,
) -> Search[Case]:
    """Asks `examples` cases. After the first that breaks, `shrinks` smaller ones are tried
    at most. The same arguments give the same outcome: no database and no clock."""
    hunt = _Hunt(ask, shrinks)

    @seed(random_seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
    @given(case=cases)
    def hold(case: Case) -> None:
        breach = hunt.breach(case)
        if breach:
            raise breach

    try:
        hold()
    except Breach as breach:
        return Search(hunt.tried, hunt.case_of(breach), breach)
    except Enough:
        return Search(hunt.tried, *hunt.last())
    return Search(hunt.tried)


class Enough(BaseException):
    """So many smaller cases were tried. No Exception, which would be taken for a breach."""


class _Hunt(Generic[Case]):
    """Remembers what broke: a case that broke once is broken, even when its strategy would
    plan otherwise the next time."""

    def __init__(self, ask: Callable[[Case], None], shrinks: int) -> None:
        self.tried = 0
        self._ask = ask
        self._left = shrinks
        self._broken: dict[Case, Breach] = {}

    def breach(self, case: Case) -> Breach | None:
        """How the case breaks the promise that was the first to be found broken."""
        if case in self._broken:
            return self._broken[case]
        if self._broken:
            self._left -= 1
            if self._left < 0:
                raise Enough
        else:
            self.tried += 1
        try:
            self._ask(case)
        except Breach as breach:
            if self._broken and breach.promise is not next(iter(self._broken.values())).promise:
                return None
            self._broken[case] = breach.with_traceback(None)
            return breach
        return None

    def case_of(self, breach: Breach) -> Case:
        """Where it happened."""
        return next(case for case, found in self._broken.items() if found is breach)

    def last(self) -> tuple[Case, Breach]:
        """The last that broke: after the first, only smaller ones than the smallest so far
        are tried."""
        return list(self._broken.items())[-1]
