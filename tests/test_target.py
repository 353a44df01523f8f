"""Where a service is, in every way that people write it."""

import pytest
import typer

from cli.target import ADMIN, SERVICE, read_target


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.7:8000", "10.0.0.7:8000"),
        ("http://10.0.0.7:8000", "10.0.0.7:8000"),
        ("http://10.0.0.7:8000/", "10.0.0.7:8000"),
        ("grpc://walkway.example:8000", "walkway.example:8000"),
        ("walkway.example", "walkway.example:50051"),
        (" walkway.example ", "walkway.example:50051"),
        ("http://walkway.example", "walkway.example:50051"),
        (":8000", "127.0.0.1:8000"),
        ("8000", "127.0.0.1:8000"),
        ("", "127.0.0.1:50051"),
        (None, "127.0.0.1:50051"),
        ("[::1]:8000", "[::1]:8000"),
        ("[::1]", "[::1]:50051"),
        ("::1", "[::1]:50051"),
        ("http://[fe80::1]:8000", "[fe80::1]:8000"),
        ("unix:/run/walkway.sock", "unix:/run/walkway.sock"),
        ("dns:///walkway.example:8000", "dns:///walkway.example:8000"),
    ],
)
def test_a_target_is_read_as_it_is_written(text: str | None, address: str) -> None:
    assert read_target(text, None, SERVICE) == address


def test_a_port_goes_over_the_targets_and_each_role_has_its_own() -> None:
    assert read_target("walkway.example:8000", 9000, SERVICE) == "walkway.example:9000"
    assert read_target("walkway.example", None, ADMIN) == "walkway.example:50052"
    assert read_target(None, 9000, ADMIN) == "127.0.0.1:9000"


@pytest.mark.parametrize(
    ("text", "port", "why"),
    [
        ("https://walkway.example:8000", None, "speaks no TLS; try walkway.example:8000"),
        ("ftp://walkway.example", None, "unknown scheme 'ftp'"),
        ("http://walkway.example/v1", None, "only a host and a port"),
        ("user@walkway.example", None, "only a host and a port"),
        ("walkway.example:http", None, "port 'http' is not 1 to 65535"),
        ("walkway.example:", None, "port '' is not 1 to 65535"),
        ("walkway.example:70000", None, "port '70000'"),
        ("70000", None, "port '70000'"),
        ("[::1", None, "not of the form"),
        ("[::1]8000", None, "not of the form"),
        ("unix:/run/walkway.sock", 8000, "no port that --port could replace"),
    ],
)
def test_what_is_no_target_is_said_with_why(text: str, port: int | None, why: str) -> None:
    with pytest.raises(typer.BadParameter) as raised:
        read_target(text, port, SERVICE)
    assert why in raised.value.message
