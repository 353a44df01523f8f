"""Shows the requests that live in an engine."""

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.asking import open_channel
from protos.walkway.v1 import admin_pb2 as pb
from protos.walkway.v1.admin_pb2_grpc import AdminServiceStub

TIMEOUT_S = 10.0
FILE_WIDTH = 500

COLUMNS = (
    "id",
    "request",
    "state",
    "tenant",
    "prio",
    "age s",
    "prompt",
    "output",
    "pages",
    "host",
    "gave way",
    "again",
)


def show_requests(target: str, limit: int) -> None:
    """A table of ListRequests, oldest first, and how many there are in all. `host` is pages
    of host memory, `again` tokens computed again."""
    with open_channel(target) as channel:
        stub = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        found = stub.ListRequests(pb.ListRequestsRequest(limit=limit), timeout=TIMEOUT_S)
    # What is written to a file or a pipe is not cut to a terminal's width.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)
    if found.requests:
        console.print(_table(found))
    console.print(f"{len(found.requests)} of {found.total} requests")


def _table(found: pb.ListRequestsResponse) -> Table:
    table = Table(box=None)
    for column in COLUMNS:
        named = column in ("request", "state", "tenant")
        table.add_column(column, justify="left" if named else "right", overflow="fold")
    for request in found.requests:
        table.add_row(*map(Text, _row(request)))
    return table


def _row(request: pb.LiveRequest) -> tuple[str, ...]:
    state = pb.RequestState.Name(request.state).removeprefix("REQUEST_STATE_").lower()
    return (
        str(request.id),
        request.request_id,
        state,
        request.tenant,
        str(request.priority),
        f"{request.age.ToNanoseconds() / 1e9:.1f}",
        str(request.prompt_tokens),
        str(request.output_tokens),
        str(request.pages),
        str(request.host_pages),
        str(request.preemptions),
        str(request.recomputed_tokens),
    )
