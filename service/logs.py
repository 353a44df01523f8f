"""Structured log on stderr: JSON for machines, colours for a terminal."""

import logging
import sys

import structlog
from structlog.typing import EventDict, Processor

from service.printable import printable
from service.settings import Log


class NotOfCallersThatLeft(logging.Filter):
    """gRPC logs an error with its traceback when a caller leaves while a message to it waits.
    The request's own log line says that it left."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("ExecuteBatchError raised in core")


def escape_values(_: object, __: str, event: EventDict) -> EventDict:
    """Callers choose some of what is written."""
    return {k: printable(v) if isinstance(v, str) else v for k, v in event.items()}


def configure_logs(log: Log) -> None:
    """Set up structlog for this process."""
    logging.getLogger("grpc._cython.cygrpc").addFilter(NotOfCallersThatLeft())
    console = log.format == "console" or (log.format == "auto" and sys.stderr.isatty())
    tail: list[Processor] = (
        # Not rich's tracebacks: they show local variables, prompts and answers among them.
        [
            escape_values,
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
        ]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            *tail,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[log.level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
