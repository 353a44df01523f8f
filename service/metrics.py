"""What the service counts, as Prometheus reads it. One registry a service, none global."""

import threading
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    start_http_server,
)

from schedulers.interface import Cause, Mode
from service.messages import StepStats

SHORT_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
LONG_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Fed by the engine's step messages (`step`, `down`) and by calls at their end."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._make_counters()
        self._make_gauges()
        self._make_times()

    def _make_counters(self) -> None:
        registry = self.registry

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"walkway_{name}", what, labels, registry=registry)

        self._input_tokens = counter("input_tokens", "Prompt tokens computed.")
        self._cached_tokens = counter(
            "cached_tokens", "Prompt tokens that the prefix cache had at admission."
        )
        self._output_tokens = counter("output_tokens", "Tokens generated.")
        self._recomputed = counter("recomputed_tokens", "Tokens computed more than once.")
        self._swapped_pages = counter("swapped_pages", "Pages copied to or from the host.")
        self._refused_swaps = counter(
            "refused_swaps", "Victims recomputed because the host store was full."
        )
        self._steps = counter("steps", "Steps of the decode loop.")
        self._rows = counter("rows", "Rows computed, over all steps.")
        self._short_rows = counter("short_rows", "Rows left out of a step for want of pages.")
        self._plan_faults = counter("plan_faults", "Plans that broke a rule, or came late.")
        self._preemptions = counter(
            "preemptions", "Requests that had to give way.", "mode", "cause"
        )
        for mode in Mode:
            for cause in Cause:
                self._preemptions.labels(mode.value, cause.value)
        self._dropped = counter("dropped_tokens", "Tokens generated past a stop string.")
        self._overrun = counter(
            "overrun_tokens", "Tokens of steps planned ahead for requests that had ended."
        )
        self._finishes = counter("requests_finished", "Requests taken, by their end.", "finish")
        self._refusals = counter("requests_refused", "Requests not taken, by code.", "code")
        self._restarts = counter("engine_restarts", "Engines started after the first.")

    def _make_gauges(self) -> None:
        registry = self.registry

        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(f"walkway_{name}", what, labels, registry=registry)

        self._requests = gauge("requests", "Requests in the engine, by state.", "state")
        self._pages = gauge("kv_pages", "KV pages, by state.", "state")
        self._slots = gauge("kv_used_slots", "Slots of held pages that carry a token.")
        self._engine_up = gauge("engine_up", "1 while an engine serves.")
        self._scheduler = Info(
            "walkway_scheduler", "The strategy that plans steps.", registry=registry
        )
        for state in ("running", "waiting", "swapped"):
            self._requests.labels(state).set(0)

    def _make_times(self) -> None:
        registry = self.registry

        def histogram(
            name: str, what: str, buckets: tuple[float, ...], *labels: str
        ) -> Histogram:
            return Histogram(
                f"walkway_{name}_seconds", what, labels, registry=registry, buckets=buckets
            )

        self._queue = histogram("queue", "From arrival to the first step.", LONG_S)
        self._ttft = histogram("time_to_first_token", "From arrival.", LONG_S)
        self._tpot = histogram("time_per_output_token", "Mean gap, per request.", SHORT_S)
        self._total = histogram("request", "From arrival to the end.", LONG_S)
        self._pause = histogram("pause", "All a request's time given way, if any.", LONG_S)
        self._step = histogram("step", "Latency of a step, by part.", SHORT_S, "part")

    def step(self, stats: StepStats) -> None:
        """A step message of the engine."""
        self._count(stats)
        self._gauge(stats)
        for part in ("schedule", "model", "sample", "copy") if stats.steps else ():
            mean_s = getattr(stats, f"{part}_s") / stats.steps
            for _ in range(stats.steps):  # more than one when messages merged
                self._step.labels(part).observe(mean_s)

    def up(self, generation: int, pages: int) -> None:
        """An engine serves, with so many pages and none of them in use."""
        self._engine_up.set(1)
        self._gauge(StepStats(free_pages=pages))
        if generation > 1:
            self._restarts.inc()

    def down(self) -> None:
        """The engine is gone, and what it held with it."""
        self._engine_up.set(0)
        self._gauge(StepStats())

    def scheduler(self, name: str) -> None:
        """This strategy plans from now on."""
        self._scheduler.info({"name": name})

    def refused(self, code: str) -> None:
        """A request was not taken."""
        self._refusals.labels(code).inc()

    def finished(self, finish: str, total_s: float) -> None:
        """A request that was taken ended."""
        self._finishes.labels(finish).inc()
        self._total.observe(total_s)

    def timed(self, queue_s: float | None, ttft_s: float | None, tpot_s: float | None) -> None:
        """Where a request's time went; None for what it never reached."""
        for histogram, value in (
            (self._queue, queue_s),
            (self._ttft, ttft_s),
            (self._tpot, tpot_s),
        ):
            if value is not None:
                histogram.observe(value)

    def paused(self, paused_s: float) -> None:
        """A request that had to give way ended."""
        self._pause.observe(paused_s)

    def dropped(self, tokens: int) -> None:
        """The engine ran ahead of a stop string."""
        self._dropped.inc(tokens)

    def _count(self, stats: StepStats) -> None:
        self._input_tokens.inc(stats.input_tokens)
        self._cached_tokens.inc(stats.cached_tokens)
        self._output_tokens.inc(stats.output_tokens)
        self._recomputed.inc(stats.recomputed_tokens)
        self._swapped_pages.inc(stats.swapped_pages)
        self._refused_swaps.inc(stats.refused_swaps)
        self._steps.inc(stats.steps)
        self._rows.inc(stats.rows)
        self._short_rows.inc(stats.short_rows)
        self._overrun.inc(stats.overrun_tokens)
        self._plan_faults.inc(stats.plan_faults)
        for eviction, count in stats.evictions.items():
            mode, cause = eviction.split()
            self._preemptions.labels(mode, cause).inc(count)

    def _gauge(self, stats: StepStats) -> None:
        for state in ("running", "waiting", "swapped"):
            self._requests.labels(state).set(getattr(stats, state))
        self._pages.labels("free").set(stats.free_pages - stats.cached_pages)
        self._pages.labels("cached").set(stats.cached_pages)
        self._pages.labels("held").set(stats.held_pages)
        self._slots.set(stats.used_slots)


class MetricsServer:
    """The endpoint, on a thread of its own. Raises OSError when the port is taken."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        self._server: WSGIServer
        self._thread: threading.Thread
        self._server, self._thread = start_http_server(port, host, metrics.registry)
        self.port = self._server.server_port

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
