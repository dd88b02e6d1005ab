"""How our processes log: one line an event on stderr, JSON for machines or aligned text for people."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal, TextIO

import msgspec
import structlog

Format = Literal["json", "text"]
LEVELS = ("debug", "info", "warning", "error")

_encode = msgspec.json.Encoder(enc_hook=str).encode


def configure_logs(level: str = "info", format: Format = "json", *, stream: TextIO | None = None) -> None:
    """Sets up structlog and, through it, what libraries say with `logging`. Call once, before anything logs."""
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    number = getattr(logging, level.upper())
    out = stream or sys.stderr
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render: list[structlog.typing.Processor]
    if format == "json":
        render = [structlog.processors.format_exc_info, structlog.processors.EventRenamer("msg"), _as_json]
    else:
        # Plain tracebacks: the pretty ones print every local variable, which here are whole objects of users.
        plain = structlog.dev.plain_traceback
        render = [structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=40, exception_formatter=plain)]
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render]
        )
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler], force=True)


def _as_json(_: Any, __: str, event: structlog.typing.EventDict) -> str:
    return _encode(event).decode()
