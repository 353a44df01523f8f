"""Reads where a service is: what people copy from a browser, a log or a config file."""

from dataclasses import dataclass

import typer

THIS_MACHINE = "127.0.0.1"
PLAIN_SCHEMES = ("http", "grpc", "h2c", "tcp")
SECURE_SCHEMES = ("https", "grpcs", "tls")
GRPC_SCHEMES = ("unix", "unix-abstract", "vsock", "dns", "ipv4", "ipv6", "xds")


@dataclass(frozen=True, slots=True)
class Role:
    """What listens at an address: the setting that names it, its default port and the
    service that it offers."""

    group: str
    port: int
    service: str

    @property
    def default(self) -> str:
        """Where it listens unless it was told otherwise."""
        return f"{THIS_MACHINE}:{self.port}"


SERVICE = Role("server", 50051, "walkway.v1.InferenceService")
ADMIN = Role("admin", 50052, "walkway.v1.AdminService")


def read_target(text: str | None, port: int | None, role: Role) -> str:
    """`host:port` for gRPC. `text` may be `host`, `:port`, `port`, an IPv6 address or a URL
    without a path; gRPC's own names (`unix:`, `dns:` ...) stay as they are. `port` goes over
    the text's. What is absent is this machine and the role's own port. Raises
    typer.BadParameter."""
    text = (text or "").strip()
    if text.partition(":")[0] in GRPC_SCHEMES:
        if port is not None:
            raise _wrong(text, "it has no port that --port could replace")
        return text
    host, own_port = _host_and_port(_without_scheme(text))
    host = host or THIS_MACHINE
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port or own_port or role.port}"


def _without_scheme(text: str) -> str:
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "grpc", text
    if scheme in SECURE_SCHEMES:
        raise _wrong(text, f"walkway speaks no TLS; try {rest}")
    if scheme not in PLAIN_SCHEMES:
        raise _wrong(text, f"unknown scheme {scheme!r}")
    address = rest.removesuffix("/")
    if "/" in address or "@" in address:
        raise _wrong(text, "only a host and a port are used")
    return address


def _host_and_port(address: str) -> tuple[str, int | None]:
    if address.isdecimal():
        return "", _port(address, address)
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _wrong(address, "not of the form [address]:port")
        return host, _port(rest[1:], address) if rest else None
    if address.count(":") > 1:
        return address, None
    host, colon, port = address.partition(":")
    return host, _port(port, address) if colon else None


def _port(text: str, address: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise _wrong(address, f"port {text!r} is not 1 to 65535")
    return int(text)


def _wrong(target: str, why: str) -> typer.BadParameter:
    return typer.BadParameter(f"{target}: {why}", param_hint="--target")
