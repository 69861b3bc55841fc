"""Events of the standard library's loggers come out as JSON or as lines, with all their fields."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest

from geminga_server.errors import ConfigError
from geminga_server.logging import configure_logging, set_log_level

log = logging.getLogger("geminga_test.storage")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def test_a_json_event_carries_its_fields_and_where_it_came_from() -> None:
    stream = io.StringIO()
    configure_logging("bookie", is_json=True, stream=stream)
    log.info("ledger sealed", extra={"ledger": 7, "topic": "ü", "odd": {1, 2}})
    event = json.loads(stream.getvalue())
    assert event.pop("time").endswith("Z")
    assert event == {
        "event": "ledger sealed",
        "ledger": 7,
        "topic": "ü",
        "odd": "{1, 2}",
        "level": "info",
        "logger": "geminga_test.storage",
        "part": "bookie",
    }
    assert "ü" in stream.getvalue(), "people read it too"


def test_a_json_event_is_one_line_with_its_trace() -> None:
    stream = io.StringIO()
    configure_logging("bookie", is_json=True, stream=stream)
    log.error("task failed", exc_info=KeyError("gone\nfor ever"))
    assert stream.getvalue().count("\n") == 1
    assert "KeyError" in json.loads(stream.getvalue())["exception"]


def test_a_line_for_people_has_event_and_fields_and_no_colours_in_a_file() -> None:
    stream = io.StringIO()
    configure_logging("broker", stream=stream)
    log.warning("disk full", extra={"free_bytes": 12})
    line = stream.getvalue()
    for piece in ("warning", "disk full", "free_bytes=12", "part=broker", "geminga_test.storage"):
        assert piece in line
    assert "\x1b" not in line


def test_a_trace_for_people_is_python_s_own() -> None:
    stream = io.StringIO()
    configure_logging("broker", stream=stream)
    try:
        os.environ["GEMINGA_GONE"]
    except KeyError:
        log.exception("task failed")
    assert "Traceback (most recent call last):" in stream.getvalue()
    assert "╭" not in stream.getvalue()


def test_colours_are_for_terminals_whose_users_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    configure_logging("broker", stream=stream)
    log.info("up")
    assert "\x1b" in stream.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    configure_logging("broker", stream=plain)
    log.info("up")
    assert "\x1b" not in plain.getvalue()


def test_the_level_can_be_changed_while_running() -> None:
    stream = io.StringIO()
    configure_logging("broker", level="warning", stream=stream)
    log.info("one")
    set_log_level("DEBUG")
    log.debug("two")
    set_log_level("error")
    log.warning("three")
    assert "two" in stream.getvalue()
    assert "one" not in stream.getvalue()
    assert "three" not in stream.getvalue()


@pytest.mark.parametrize("level", ["LOUD", "", "10"])
def test_a_level_that_is_none_is_refused_with_those_there_are(level: str) -> None:
    with pytest.raises(ConfigError, match="DEBUG, INFO, WARNING, ERROR, CRITICAL"):
        configure_logging("broker", level=level, stream=io.StringIO())


def test_configuring_again_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging("broker", stream=first)
    configure_logging("broker", stream=second)
    log.info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_warnings_are_events_too() -> None:
    stream = io.StringIO()
    configure_logging("broker", stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("careful", UserWarning, stacklevel=1)
    assert "careful" in stream.getvalue()


def test_structlog_comes_with_the_first_event_and_rich_never() -> None:
    source = """
import io, logging, sys
from geminga_server.logging import configure_logging
configure_logging("broker", stream=io.StringIO())
assert "structlog" not in sys.modules
logging.getLogger("x").error("event")
assert "structlog" in sys.modules
assert not any(name.startswith("rich") for name in sys.modules)
import rich
"""
    subprocess.run([sys.executable, "-c", source], check=True)
