"""What the service counts, as Prometheus reads it. One registry a service, none global."""

from prometheus_client import CollectorRegistry

from protos.descriptors import descriptor_set, methods
from service.messages import Ready, StepEvents
from service.metrics.engine import EngineMetrics
from service.metrics.families import Families
from service.metrics.latency import InterTokenLatency
from service.metrics.named import Named
from service.metrics.process import ProcessMetrics
from service.metrics.queue import Queue, QueueMetrics
from service.metrics.requests import RequestMetrics
from service.metrics.rpcs import RpcMetrics

__all__ = ["Metrics"]


class Metrics:
    """All metrics of a service that serves `model`."""

    def __init__(self, model: str) -> None:
        self.registry = CollectorRegistry()
        families = Families(self.registry)
        self.requests = RequestMetrics(families)
        self.latency = InterTokenLatency(families)
        self.engine = EngineMetrics(families)
        self.rpcs = RpcMetrics(families, methods(descriptor_set()))
        self.process = ProcessMetrics(families)
        self._queue = QueueMetrics(families)
        self._model = model

    def exposed(self) -> CollectorRegistry:
        """What is scraped: `registry` with the label `model_name`."""
        exposed = CollectorRegistry(auto_describe=True)
        exposed.register(Named(self.registry, self._model))
        return exposed

    def up(self, ready: Ready) -> None:
        """An engine serves."""
        self.engine.up(ready)
        self.process.engine_up(ready.pid)

    def heard(self, events: StepEvents) -> None:
        """A message of the engine."""
        self.engine.step(events.stats)
        self.latency.arrived(events.events)

    def down(self) -> None:
        """The engine is gone."""
        self.engine.down()
        self.latency.down()
        self.process.engine_down()

    def watch_queue(self, queue: Queue) -> None:
        """Show what waits in the front end, and the limits that hold for it."""
        self._queue.watch(queue)
