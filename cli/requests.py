"""Shows the requests that live in an engine."""

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.as_json import plain, print_json
from cli.asking import open_channel
from protos.walkway.v1 import admin_pb2 as pb
from protos.walkway.v1.admin_pb2_grpc import AdminServiceStub
from service.printable import printable

TIMEOUT_S = 10.0
FILE_WIDTH = 500

COLUMNS = ("id", "request", "state", "tenant", "prio", "age s", "tokens", "pages", "preempted")


def show_requests(target: str, limit: int, as_json: bool) -> None:
    """A table of ListRequests, oldest first, and how many there are in all: tokens of prompt +
    output, pages of device + host, times preempted and the tokens computed again for it."""
    with open_channel(target) as channel:
        stub = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        found = stub.ListRequests(pb.ListRequestsRequest(limit=limit), timeout=TIMEOUT_S)
    if as_json:
        print_json(plain(found))
        return
    # What is written to a file or a pipe is not cut to a terminal's width.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)
    if found.requests:
        console.print(requests_table(found))
    console.print(f"{len(found.requests)} of {found.total} requests")


def requests_table(found: pb.ListRequestsResponse) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in COLUMNS:
        named = column in ("request", "state", "tenant")
        table.add_column(column, justify="left" if named else "right", overflow="fold")
    for request in found.requests:
        table.add_row(*(Text(printable(cell)) for cell in _row(request)))
    return table


def _row(request: pb.LiveRequest) -> tuple[str, ...]:
    state = pb.RequestState.Name(request.state).removeprefix("REQUEST_STATE_").lower()
    again = f" ({request.recomputed_tokens})" if request.recomputed_tokens else ""
    host = f"+{request.host_pages}" if request.host_pages else ""
    return (
        str(request.id),
        request.request_id,
        state,
        request.tenant,
        str(request.priority),
        f"{request.age.ToNanoseconds() / 1e9:.1f}",
        f"{request.prompt_tokens}+{request.output_tokens}",
        f"{request.pages}{host}",
        f"{request.preemptions}{again}",
    )
