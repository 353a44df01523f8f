"""The label `model_name`, on everything that is the service's own."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample


class Named(Collector):
    """What `registry` collects, every `walkway_*` with the label. It is put on here, when
    somebody looks, and not at every count."""

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
        self._registry = registry
        self._model = model

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = list(self._named(metric))
            yield metric

    def _named(self, metric: Metric) -> Iterator[Sample]:
        ours = metric.name.startswith("walkway_")
        for sample in metric.samples:
            if sample.name.endswith("_created"):  # doubles the page, and hardly anyone reads it
                continue
            labels = {"model_name": self._model, **sample.labels} if ours else sample.labels
            yield sample._replace(labels=labels)
