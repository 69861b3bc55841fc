"""Renders the events that are logged through the standard library: as lines for people, or as JSON.

All other modules use ``logging.getLogger(__name__)`` and ``extra={...}``. This one puts a handler
on the root logger whose formatter is structlog's. structlog is imported at the first event, and
without ``rich``, which draws boxes around traces that log collectors cannot use and takes 50 of 75
ms.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from geminga_server.errors import ConfigError

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def configure_logging(
    part: str, *, level: str = "INFO", is_json: bool = False, stream: TextIO | None = None
) -> None:
    """Log events of ``level`` and above to ``stream`` (standard error), as ``part``.

    ``is_json`` writes one JSON object a line; otherwise lines for people, coloured on a terminal
    unless the variable ``NO_COLOR`` is set. Calling it again replaces the earlier configuration.
    Raises ``ConfigError`` for an unknown level.
    """
    # Standard output belongs to what a command prints.
    target = stream or sys.stderr
    handler = logging.StreamHandler(target)
    is_coloured = not is_json and target.isatty() and not os.environ.get("NO_COLOR")
    handler.setFormatter(_LateFormatter(part, is_json=is_json, is_coloured=is_coloured))
    # Before the root logger is changed: an unknown level changes nothing.
    set_log_level(level)
    root = logging.getLogger()
    # Only handlers of ours: a test runner or a host program may have its own on the root logger.
    for old in list(root.handlers):
        if isinstance(old.formatter, _LateFormatter):
            root.removeHandler(old)
    root.addHandler(handler)
    # Warnings of libraries would else be lines that a collector of JSON cannot read.
    logging.captureWarnings(capture=True)


def set_log_level(level: str) -> None:
    """Log events of ``level`` and above from now on. Raises ``ConfigError`` if it is unknown."""
    name = level.upper()
    if name not in LEVELS:
        raise ConfigError(f"{level!r} is no log level; it should be one of {', '.join(LEVELS)}")
    logging.getLogger().setLevel(name)


class _LateFormatter(logging.Formatter):
    """structlog's formatter, made when the first event comes."""

    def __init__(self, part: str, *, is_json: bool, is_coloured: bool) -> None:
        super().__init__()
        self._part = part
        self._is_json = is_json
        self._is_coloured = is_coloured
        self._formatter: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        # Logging holds the handler's lock here: two threads do not make it twice.
        if self._formatter is None:
            with _import_blocked("rich"):
                self._formatter = _structlog_formatter(
                    self._part, is_json=self._is_json, is_coloured=self._is_coloured
                )
        return self._formatter.format(record)


def _structlog_formatter(part: str, *, is_json: bool, is_coloured: bool) -> logging.Formatter:
    import structlog  # noqa: PLC0415 - late, see above

    def add_part(
        _logger: WrappedLogger, _method: str, event: EventDict
    ) -> MutableMapping[str, object]:
        event["part"] = part
        # Another handler's formatter may have left these on the record; no field of ours is called
        # so.
        event.pop("message", None)
        event.pop("asctime", None)
        return event

    # In the order in which they add to an event, which is the order of the fields.
    facts: list[Processor] = [
        structlog.stdlib.ExtraAdder(),
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        add_part,
    ]
    # These run after the facts. The first takes away what the formatter keeps for itself.
    renderers: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if is_json:
        renderers.append(structlog.processors.format_exc_info)
        # A field that JSON does not know, as a path, is shown as Python shows it.
        renderers.append(structlog.processors.JSONRenderer(ensure_ascii=False, default=repr))
    else:
        renderers.append(
            structlog.dev.ConsoleRenderer(
                colors=is_coloured,
                pad_event_to=0,
                timestamp_key="time",
                exception_formatter=structlog.dev.plain_traceback,
            )
        )
    return structlog.stdlib.ProcessorFormatter(processors=renderers, foreign_pre_chain=facts)


@contextmanager
def _import_blocked(package: str) -> Generator[None]:
    """Make ``import package`` fail, as if it were not installed, unless it is loaded already."""
    # A program that has loaded it already uses it: it keeps its module.
    is_blocked = package not in sys.modules
    if is_blocked:
        # Python's own mark for a module that cannot be imported.
        sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if is_blocked:
            del sys.modules[package]
