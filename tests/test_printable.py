"""What callers choose does not steer the operator's terminal."""

import io

import pytest
import structlog
from rich.console import Console

from cli.requests import requests_table
from cli.top import statistics_table
from protos.walkway.v1 import admin_pb2 as pb
from service.logs import configure_logs
from service.printable import printable
from service.settings import Log

EVIL = "\x1b[2J\x1b]0;title\x07\r[bold]red[/]\u202eelif"
SHOWN = r"\x1b[2J\x1b]0;title\x07\r[bold]red[/]\u202eelif"


def test_what_a_terminal_obeys_or_hides_is_spelled_out_and_the_rest_stays() -> None:
    assert printable(EVIL) == SHOWN
    assert printable("a request, 気 😀") == "a request, 気 😀"


@pytest.mark.parametrize("terminal", [True, False])
def test_names_of_callers_are_shown_and_not_obeyed(terminal: bool) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=300, color_system=None)
    live = pb.LiveRequest(id=1, request_id=EVIL, tenant=EVIL)
    console.print(requests_table(pb.ListRequestsResponse(requests=[live], total=1)))
    console.print(statistics_table(pb.StreamStatisticsResponse(scheduler=EVIL), None))
    text = written.getvalue()
    assert text.count(SHOWN) == 3
    assert "\x1b[2J" not in text
    assert "\x07" not in text


def test_a_log_for_people_does_not_obey_either(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Log(format="console"))
    try:
        structlog.get_logger().info("request_refused", request_id="\x1b[2Jx", count=3)
    finally:
        structlog.reset_defaults()
    written = capsys.readouterr().err
    assert "\x1b[2J" not in written
    assert r"\x1b[2J" in written
