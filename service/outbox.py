"""News that could not be sent yet: it merges per request, so its size is bounded by what
open requests may generate, not by how long nobody read."""

import msgspec

from service.messages import RequestEvent, StepEvents, StepStats

COUNTERS = (
    "steps",
    "rows",
    "input_tokens",
    "output_tokens",
    "preemptions",
    "recomputed_tokens",
    "swapped_pages",
    "cached_tokens",
    "refused_swaps",
    "short_rows",
    "overrun_tokens",
    "plan_faults",
    "schedule_s",
    "model_s",
    "sample_s",
    "copy_s",
    "step_tokens",
)
TALLIES = ("evictions",)  # counters by a word


def merge_events(older: RequestEvent, newer: RequestEvent) -> RequestEvent:
    """Two pieces of news of one request as one; the older may be reused for it."""
    older.admitted = older.admitted or newer.admitted
    older.paused += newer.paused
    older.resumed_s += newer.resumed_s
    older.tokens += newer.tokens
    older.logprobs += newer.logprobs
    older.prompt_logprobs += newer.prompt_logprobs
    older.finish = newer.finish or older.finish
    older.detail = newer.detail or older.detail
    older.receipt = newer.receipt or older.receipt
    return older


def merge_stats(older: StepStats, newer: StepStats) -> StepStats:
    """Gauges are the newer ones, counters and times add up."""
    merged = msgspec.structs.replace(newer)
    for name in COUNTERS:
        setattr(merged, name, getattr(older, name) + getattr(newer, name))
    for name in TALLIES:
        setattr(merged, name, _added(getattr(older, name), getattr(newer, name)))
    return merged


def _added(older: dict[str, int], newer: dict[str, int]) -> dict[str, int]:
    if not older or not newer:
        return older or newer
    return {key: older.get(key, 0) + newer.get(key, 0) for key in older | newer}


class Outbox:
    """What the front end was not told yet. Events that are added belong to the outbox."""

    def __init__(self) -> None:
        self._events: dict[int, RequestEvent] = {}
        self._stats: StepStats | None = None

    def __bool__(self) -> bool:
        return self._stats is not None

    def add(self, events: list[RequestEvent], stats: StepStats) -> None:
        for event in events:
            older = self._events.get(event.id)
            self._events[event.id] = merge_events(older, event) if older else event
        self._stats = merge_stats(self._stats, stats) if self._stats else stats

    def take(self, generation: int) -> StepEvents:
        """Everything, in one message; nothing is left."""
        message = StepEvents(
            generation, list(self._events.values()), self._stats or StepStats()
        )
        self._events, self._stats = {}, None
        return message
