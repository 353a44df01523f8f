"""Makes metrics: each is named `walkway_...` and in the registry from the start, with every
label value, so that a rate over the first event is not lost."""

from collections.abc import Iterable
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

SHORT_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
LONG_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5)

Family = TypeVar("Family", Counter, Gauge, Histogram)


class Families:
    """Metrics of one registry. Histograms are of seconds unless `unit` says otherwise."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def counter(self, name: str, what: str, *labels: str) -> Counter:
        """Shown as `walkway_NAME_total`."""
        return Counter(f"walkway_{name}", what, labels, registry=self.registry)

    def gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"walkway_{name}", what, labels, registry=self.registry)

    def histogram(
        self,
        name: str,
        what: str,
        buckets: tuple[float, ...],
        *labels: str,
        unit: str = "seconds",
    ) -> Histogram:
        """Shown as `walkway_NAME_UNIT`."""
        name = f"walkway_{name}_{unit}"
        return Histogram(name, what, labels, registry=self.registry, buckets=buckets)

    def info(self, name: str, what: str) -> Info:
        """Shown as `walkway_NAME_info`, 1 with labels that say something."""
        return Info(f"walkway_{name}", what, registry=self.registry)


def by_label(family: Family, values: Iterable[str]) -> dict[str, Family]:
    """A family with one label, by its values: to look one up here takes a quarter of the
    time that `labels` does."""
    return {value: family.labels(value) for value in values}
