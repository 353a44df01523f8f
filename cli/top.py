"""Shows an engine's statistics as they change."""

from collections.abc import Iterator
from itertools import islice

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.as_json import plain, print_json
from cli.asking import open_channel
from protos.walkway.v1 import admin_pb2 as pb
from protos.walkway.v1.admin_pb2_grpc import AdminServiceStub
from service.printable import printable

COUNTERS = (
    ("steps", "steps"),
    ("prompt tokens", "input_tokens"),
    ("output tokens", "output_tokens"),
    ("preemptions", "preemptions"),
    ("recomputed tokens", "recomputed_tokens"),
    ("swapped pages", "swapped_pages"),
    ("bad plans", "plan_faults"),
)


def watch(target: str, interval_s: float, count: int | None) -> None:
    """Update a table in place; on what is no terminal the last one is written. Ends with
    the stream, or after `count` updates."""
    before = None
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        for found in _updates(target, interval_s, count):
            live.update(statistics_table(found, before), refresh=True)
            before = found


def print_statistics(target: str, interval_s: float, count: int) -> None:
    """Each of `count` updates as a line of JSON."""
    for found in _updates(target, interval_s, count):
        print_json(plain(found))


def _updates(
    target: str, interval_s: float, count: int | None
) -> Iterator[pb.StreamStatisticsResponse]:
    request = pb.StreamStatisticsRequest()
    request.interval.FromNanoseconds(int(interval_s * 1e9))
    with open_channel(target) as channel:
        stub = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        call = stub.StreamStatistics(request)
        try:
            yield from islice(call, count)
        finally:
            call.cancel()


def statistics_table(
    now: pb.StreamStatisticsResponse, before: pb.StreamStatisticsResponse | None
) -> Table:
    """Gauges, and counters with what they grew by in a second since `before`."""
    table = Table(box=None)
    for heading in ("", "now", "per second"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("scheduler", Text(printable(now.scheduler)), "")
    table.add_row("up", f"{now.uptime.seconds} s", "")
    states = f"{now.running} running, {now.waiting} waiting, {now.swapped} swapped"
    table.add_row("requests", states, "")
    pages = f"{now.held_pages} held, {now.cached_pages} cached, {now.free_pages} free"
    table.add_row("KV pages", pages, "")
    for heading, name in COUNTERS:
        table.add_row(heading, str(getattr(now, name)), _rate(name, now, before))
    return table


def _rate(
    name: str, now: pb.StreamStatisticsResponse, before: pb.StreamStatisticsResponse | None
) -> str:
    if before is None:
        return ""
    took_s = (now.uptime.ToNanoseconds() - before.uptime.ToNanoseconds()) / 1e9
    grown: int = getattr(now, name) - getattr(before, name)
    return f"{grown / took_s:.1f}" if took_s > 0 else ""
