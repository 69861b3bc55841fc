"""Proves that jobs explain themselves, and what of their options reaches the data source."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

import pytest

import pyspark_geminga.jobs
from pyspark_geminga.jobs import _session

JOBS = sorted(
    module.stem
    for module in Path(pyspark_geminga.jobs.__path__[0]).glob("*.py")
    if not module.stem.startswith("_")
)


@pytest.mark.parametrize("name", JOBS)
def test_every_job_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        import_module(f"pyspark_geminga.jobs.{name}").main(["--help"])
    assert ended.value.code == 0
    assert f"usage: python -m pyspark_geminga.jobs.{name}" in capsys.readouterr().out


def parsed(*arguments: str) -> argparse.Namespace:
    parser = _session.job_parser("archive", "It stores.")
    _session.add_topics(parser, is_range=True)
    _session.add_stream(parser)
    return parser.parse_args(["--checkpoint", "/c", *arguments])


def test_topics_are_read_from_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINGA_SERVICE_URL", raising=False)
    monkeypatch.delenv("GEMINGA_ADMIN_URL", raising=False)
    assert _session.source_options(parsed("--topic", "a", "--topic", "b"), valueMode="raw") == {
        "service.url": "pulsar://localhost:6650",
        "admin.url": "http://localhost:8080",
        "topics": "a,b",
        "startingOffsets": "earliest",
        "valueMode": "raw",
    }


def test_every_option_reaches_the_source() -> None:
    arguments = parsed(
        *("--service-url", "pulsar://b:1", "--admin-url", ""),
        *("--topics-pattern", "public/default/.*", "--starting-time", "2026-11-22T10:00:00Z"),
        *("--ending-time", "5", "--ending-offsets", "latest", "--max-rows-per-trigger", "7"),
        *("--option", "pulsar.client.authParams=token:a=b", "--option", "valueMode=schema"),
    )
    assert _session.source_options(arguments, valueMode="raw") == {
        "service.url": "pulsar://b:1",
        "topicsPattern": "public/default/.*",
        "startingTime": "2026-11-22T10:00:00Z",
        "endingTime": "5",
        "endingOffsets": "latest",
        "maxRowsPerTrigger": "7",
        "pulsar.client.authParams": "token:a=b",
        "valueMode": "schema",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--topic", "a", "--topics-pattern", "b"),
        ("--topic", "a", "--option", "nothing"),
        ("--topic", "a", "--max-rows-per-trigger", "0"),
        ("--topic", "a", "--max-rows-per-trigger", "1", "--max-bytes-per-trigger", "1"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*arguments)
    assert ended.value.code == 2
