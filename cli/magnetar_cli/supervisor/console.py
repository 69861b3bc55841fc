"""What the supervisor says: its log on standard error, and READY on standard output.

The parts render their logs with structlog. The supervisor, which must stay small, does without it
(5 MB and 60 ms) and writes the same two shapes itself: words for people, JSON for programs.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

# What every LogRecord has; the rest came with ``extra``.
STANDARD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
EVENT_WIDTH = 30


class WordsFormatter(logging.Formatter):
    """``2026-11-21T04:46:33.120Z [warning ] part ended unasked  part=bookie restart_in_s=0.1``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback follows it."""
        facts = " ".join(f"{name}={_word(value)}" for name, value in extra_fields(record).items())
        event = record.getMessage()
        line = f"{_when(record)} [{record.levelname.lower():8}] "
        line += f"{event:{EVENT_WIDTH}} {facts}" if facts else event
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """``{"timestamp": ..., "level": ..., "part": "supervisor", "event": ..., ...}``."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object in one line."""
        content: dict[str, object] = {
            "timestamp": _when(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        content |= extra_fields(record)
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content, default=str)


def extra_fields(record: logging.LogRecord) -> dict[str, object]:
    """What was given as ``extra``."""
    return {name: value for name, value in record.__dict__.items() if name not in STANDARD_FIELDS}


def configure_console(*, is_json: bool, is_quiet: bool) -> None:
    """Log to standard error; ``is_quiet`` leaves out everything but warnings and worse."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if is_json else WordsFormatter())
    logging.basicConfig(
        handlers=[handler], level=logging.WARNING if is_quiet else logging.INFO, force=True
    )


def ready_line(service_url: str, web_service_url: str) -> str:
    """The one line that tells programs that everything answers."""
    return f"READY {service_url} {web_service_url}"


def next_steps(service_url: str, web_service_url: str) -> str:
    """What somebody new may try now."""
    return (
        "Try:  python -c \"import pulsar; c = pulsar.Client('" + service_url + "'); "
        "c.create_producer('hello').send(b'hi')\"\n"
        f"      curl {web_service_url}/admin/v2/persistent/public/default/hello/stats\n"
        "Stop: Ctrl-C"
    )


def no_sync_warning() -> str:
    """What --no-sync means, loudly."""
    return (
        "*** --no-sync: NOTHING IS SYNCED TO DISK. A power cut or a crash of this machine LOSES "
        "ACKNOWLEDGED MESSAGES and may ruin the data directory. "
        "Use it for tests whose data nobody needs. ***"
    )


def _when(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _word(value: object) -> str:
    """A value of a log event, quoted where it has blanks."""
    if isinstance(value, Mapping):
        return json.dumps(value, default=str)
    words = str(value)
    return repr(words) if not words or any(character.isspace() for character in words) else words
