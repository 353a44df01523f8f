"""File descriptors: every connection takes one, and an engine that starts anew needs some."""

import errno
import resource

import structlog

RESERVED = 128
"""For files of the service's own, the start of an engine, operators and scrapers."""
LEAST = 8

log = structlog.get_logger()


def raise_limit() -> None:
    """Allow this process, and the engine's with it, as many as the system lets it have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def connections_of(wanted: int) -> int:
    """How many connections to take at most, so that what is reserved stays."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return wanted
    room = max(LEAST, descriptors - RESERVED)
    if room < wanted:
        log.warning("fewer_connections", wanted=wanted, taken=room, descriptors=descriptors)
    return min(wanted, room)


def is_want(number: int | None) -> bool:
    """Whether the error of this number is that none was left."""
    return number in (errno.EMFILE, errno.ENFILE)
