"""What the engine does: steps, tokens, pages, preemptions, and what it can hold."""

from prometheus_client import Counter, Gauge

from schedulers.interface import Cause, Mode
from service.messages import Ready, StepStats
from service.metrics.families import SHORT_S, Families, by_label
from service.requests import pool_pages

COUNTERS = {  # fields of StepStats
    "input_tokens": "Prompt tokens computed.",
    "cached_tokens": "Prompt tokens that the prefix cache had at admission.",
    "output_tokens": "Tokens generated.",
    "recomputed_tokens": "Tokens computed more than once.",
    "swapped_pages": "Pages copied to or from the host.",
    "refused_swaps": "Victims recomputed because the host store was full.",
    "steps": "Steps of the decode loop.",
    "rows": "Rows computed, over all steps.",
    "short_rows": "Rows left out of a step for want of pages.",
    "plan_faults": "Plans that broke a rule, or came late.",
    "overrun_tokens": "Tokens of steps planned ahead for requests that had ended.",
}
STATES = ("running", "waiting", "swapped")
PARTS = ("schedule", "model", "sample", "copy")
STEP_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class EngineMetrics:
    """Fed by what the engine says: `up`, a `step` message after each step, `down`."""

    def __init__(self, families: Families) -> None:
        self._counters = {name: families.counter(name, what) for name, what in COUNTERS.items()}
        self._preemptions = _preemptions(families)
        self._restarts = families.counter("engine_restarts", "Engines started after the first.")
        self._up = families.gauge("engine_up", "1 while an engine serves.")
        requests = families.gauge("requests", "Requests in the engine, by state.", "state")
        self._requests = by_label(requests, STATES)
        pages = families.gauge("kv_pages", "KV pages, by state.", "state")
        self._pages = by_label(pages, ("free", "cached", "held"))
        host = families.gauge("host_pages", "Pages of the host store, by state.", "state")
        self._host = by_label(host, ("free", "held"))
        self._slots = families.gauge("kv_used_slots", "Slots of held pages that carry a token.")
        self._scheduler = families.info("scheduler", "The strategy that plans steps.")
        step = families.histogram("step", "Latency of a step, by part.", SHORT_S, "part")
        self._step = by_label(step, PARTS)
        self._step_tokens = families.histogram(
            "step",
            "Tokens computed in a step; steps told in one message count with their mean.",
            STEP_TOKENS,
            unit="tokens",
        )
        self._capacity = _Capacity(families)
        self._host_pages = 0

    def up(self, ready: Ready) -> None:
        """An engine serves, and holds nothing yet."""
        self._up.set(1)
        self._capacity.show(ready)
        self._host_pages = ready.host_pages
        pages, host_pages = pool_pages(ready), ready.host_pages
        self._gauge(StepStats(free_pages=pages, host_free_pages=host_pages))
        if ready.generation > 1:
            self._restarts.inc()

    def down(self) -> None:
        """The engine is gone, and what it held with it."""
        self._up.set(0)
        self._host_pages = 0
        self._gauge(StepStats())

    def scheduler(self, name: str) -> None:
        """This strategy plans from now on."""
        self._scheduler.info({"name": name})

    def step(self, stats: StepStats) -> None:
        """A step message of the engine."""
        for name, counter in self._counters.items():
            if count := getattr(stats, name):
                counter.inc(count)
        for eviction, count in stats.evictions.items():
            self._preemptions[eviction].inc(count)
        self._gauge(stats)
        for _ in range(stats.steps):  # more than one when messages merged
            for part, histogram in self._step.items():
                histogram.observe(getattr(stats, f"{part}_s") / stats.steps)
            self._step_tokens.observe(stats.step_tokens / stats.steps)

    def _gauge(self, stats: StepStats) -> None:
        for state, gauge in self._requests.items():
            gauge.set(getattr(stats, state))
        self._pages["free"].set(stats.free_pages - stats.cached_pages)
        self._pages["cached"].set(stats.cached_pages)
        self._pages["held"].set(stats.held_pages)
        self._host["free"].set(stats.host_free_pages)
        self._host["held"].set(self._host_pages - stats.host_free_pages)
        self._slots.set(stats.used_slots)


class _Capacity:
    """What an engine can hold at most; 0 before the first one serves."""

    def __init__(self, families: Families) -> None:
        def gauge(name: str, what: str) -> Gauge:
            return families.gauge(name, what)

        self._rows = gauge("max_rows", "Requests that a step computes at most.")
        self._tokens = gauge("max_step_tokens", "Tokens that a step computes at most.")
        self._context = gauge("context_tokens", "Prompt and output of a request at most.")
        self._pages = gauge("kv_capacity_pages", "KV pages that requests can use.")
        self._bytes = gauge("kv_capacity_bytes", "Memory of these pages.")
        self._page = gauge("kv_page_tokens", "Tokens that a page holds.")
        self._host = gauge("host_capacity_pages", "Pages of the host store.")
        self._host_bytes = gauge("host_capacity_bytes", "Memory of the host store.")

    def show(self, ready: Ready) -> None:
        pages = pool_pages(ready)
        self._rows.set(ready.max_rows)
        self._tokens.set(ready.max_step_tokens)
        self._context.set(ready.context_tokens)
        self._pages.set(pages)
        self._bytes.set(pages * ready.page_bytes)
        self._page.set(ready.page_size)
        self._host.set(ready.host_pages)
        self._host_bytes.set(ready.host_pages * ready.page_bytes)


def _preemptions(families: Families) -> dict[str, Counter]:
    """By "mode cause", as the engine counts them."""
    family = families.counter("preemptions", "Requests that were preempted.", "mode", "cause")
    return {
        f"{mode.value} {cause.value}": family.labels(mode.value, cause.value)
        for mode in Mode
        for cause in Cause
    }
