"""Proves what the supervisor prints: log lines in words and JSON, READY, the no-sync warning."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from magnetar_cli.supervisor.console import (
    JsonFormatter,
    WordsFormatter,
    configure_console,
    next_steps,
    no_sync_warning,
    ready_line,
)


def record(event: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("magnetar_cli", logging.WARNING, "file.py", 1, event, (), None)
    made.__dict__.update(extra)
    made.created = 0.12
    return made


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_log_line_in_words_shows_time_level_event_and_facts() -> None:
    line = WordsFormatter().format(record("part ended unasked", part="bookie", restart_in_s=0.1))
    assert line.split() == [
        *("1970-01-01T00:00:00.120Z", "[warning", "]", "part", "ended", "unasked"),
        *("part=bookie", "restart_in_s=0.1"),
    ]


def test_facts_with_blanks_are_quoted() -> None:
    line = WordsFormatter().format(record("x", reason="it is in use", nothing="", many={"a": 1}))
    assert line.endswith("reason='it is in use' nothing='' many={\"a\": 1}")


def test_a_log_line_in_json_has_the_same_facts() -> None:
    assert json.loads(JsonFormatter().format(record("part ended unasked", part="bookie"))) == {
        "timestamp": "1970-01-01T00:00:00.120Z",
        "level": "warning",
        "logger": "magnetar_cli",
        "event": "part ended unasked",
        "part": "bookie",
    }


def test_an_error_brings_its_traceback_in_both_shapes() -> None:
    failed = record("task failed")
    error = ValueError("what went wrong")
    failed.exc_info = (type(error), error, None)
    assert "ValueError: what went wrong" in WordsFormatter().format(failed)
    assert "ValueError: what went wrong" in json.loads(JsonFormatter().format(failed))["exception"]


@pytest.mark.parametrize(("is_quiet", "expected"), [(False, "infowarning"), (True, "warning")])
def test_quiet_leaves_out_everything_below_a_warning(
    root_logger: logging.Logger,
    capsys: pytest.CaptureFixture[str],
    *,
    is_quiet: bool,
    expected: str,
) -> None:
    configure_console(is_json=True, is_quiet=is_quiet)
    root_logger.info("info")
    root_logger.warning("warning")
    lines = capsys.readouterr().err.splitlines()
    assert "".join(json.loads(line)["event"] for line in lines) == expected


def test_the_ready_line_is_exactly_what_programs_wait_for() -> None:
    line = ready_line("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
    assert line == "READY pulsar://127.0.0.1:6650 http://127.0.0.1:8080"


def test_the_next_steps_use_the_real_addresses() -> None:
    words = next_steps("pulsar://127.0.0.1:1", "http://127.0.0.1:2")
    assert "pulsar://127.0.0.1:1" in words
    assert "http://127.0.0.1:2/admin" in words


def test_the_no_sync_warning_says_what_is_at_stake() -> None:
    assert "LOSES ACKNOWLEDGED MESSAGES" in no_sync_warning()
