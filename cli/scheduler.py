"""Shows and exchanges the scheduler of a service."""

import sys
from collections.abc import Sequence

from google.protobuf.struct_pb2 import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.as_json import plain, print_json
from cli.asking import open_channel
from cli.options import read_options
from protos.walkway.v1 import admin_pb2 as pb
from protos.walkway.v1.admin_pb2_grpc import AdminServiceStub
from service.admin_messages import options_of
from service.strategy import BadOptions

TIMEOUT_S = 10.0


def show_scheduler(target: str, as_json: bool) -> None:
    """A table of GetScheduler."""
    with open_channel(target) as channel:
        stub = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        found = stub.GetScheduler(pb.GetSchedulerRequest(), timeout=TIMEOUT_S)
    _show(found.scheduler, as_json)


def exchange_scheduler(
    target: str, name: str, assignments: Sequence[str], as_json: bool
) -> int:
    """Exit code: 0 when it plans now, 2 for an option that cannot be read."""
    options = Struct()
    try:
        options.update(read_options(assignments))
    except (BadOptions, ValueError) as error:
        print(f"walkway: {error}", file=sys.stderr)
        return 2
    request = pb.SetSchedulerRequest(name=name, options=options)
    with open_channel(target) as channel:
        stub = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        found = stub.SetScheduler(request, timeout=TIMEOUT_S)
    _show(found.scheduler, as_json)
    return 0


def _show(scheduler: pb.Scheduler, as_json: bool) -> None:
    if as_json:
        print_json(plain(scheduler) | {"options": options_of(scheduler.options)})
        return
    name = scheduler.name
    if scheduler.replaces:
        name += f", in place of {scheduler.replaces}"
    table = Table(show_header=False, box=None)
    table.add_row("scheduler", Text(name))
    for option, value in sorted(options_of(scheduler.options).items()):
        table.add_row("option", Text(f"{option} = {value}"))
    table.add_row("bad plans", str(scheduler.faults))
    Console(highlight=False).print(table)
