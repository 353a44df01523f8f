"""What a service counted during a run."""

import asyncio
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from bench.scrape import ScrapeError, fetch

NAMES = ("preemptions", "recomputed_tokens", "swapped_pages", "plan_faults", "steps", "rows")


@dataclass(frozen=True, slots=True)
class Counted:
    """Totals since the service started; a difference is what happened between."""

    preemptions: float
    recomputed_tokens: float
    swapped_pages: float
    plan_faults: float
    steps: float
    rows: float

    def __sub__(self, before: "Counted") -> "Counted":
        return Counted(*(getattr(self, name) - getattr(before, name) for name in NAMES))


def counted(exposition: str) -> Counted:
    """The counters of an exposition. Raises ScrapeError when one is not there."""
    families = {
        family.name: sum(s.value for s in family.samples if s.name.endswith("_total"))
        for family in text_string_to_metric_families(exposition)
    }
    try:
        return Counted(*(families[f"walkway_{name}"] for name in NAMES))
    except KeyError as error:
        raise ScrapeError(f"the service has no counter {error}") from error


async def counters(url: str) -> Counted:
    """Ask a service for them. Raises ScrapeError."""
    try:
        return counted(await asyncio.to_thread(fetch, url))
    except OSError as error:
        raise ScrapeError(f"{url}: {error}") from error
