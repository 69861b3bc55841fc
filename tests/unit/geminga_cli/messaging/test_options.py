"""Proves that every option of ``pulsar-client`` is taken or refused with its reason."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from geminga_cli.commands import consume, produce, read
from geminga_cli.messaging.options import DEFAULT_URL, count, one_of, positive, positive_size, rate

# The options that pulsar-client and pulsar-perf of Pulsar 4.0.6 name in their help.
UPSTREAM = json.loads((Path(__file__).parent / "pulsar_client_words.json").read_text())
PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "produce": produce.make_parser,
    "consume": consume.make_parser,
    "read": read.make_parser,
}
MINIMAL = {"produce": ["t"], "consume": ["t", "-s", "s"], "read": ["t"]}


@pytest.mark.parametrize("command", PARSERS)
def test_every_option_of_pulsar_client_is_known(command: str) -> None:
    known = PARSERS[command]()._option_string_actions
    assert set(UPSTREAM[command] + UPSTREAM["connection"]) - set(known) == set()


@pytest.mark.parametrize(
    ("command", "option", "reason"),
    [
        ("produce", ["--proxy-url", "x"], "without a proxy"),
        ("consume", ["-ac"], "chunks are missing"),
        ("read", ["-pm", "true"], "only the Java client pools"),
    ],
)
def test_what_the_client_does_not_do_is_refused_with_the_reason(
    command: str, option: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        PARSERS[command]().parse_args([*MINIMAL[command], *option])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert f"{option[0]} is not supported: " in told
    assert reason in told


def test_the_variable_names_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINGA_SERVICE_URL", raising=False)
    assert read.make_parser().parse_args(["t"]).url == DEFAULT_URL
    monkeypatch.setenv("GEMINGA_SERVICE_URL", "pulsar://there:6650")
    assert read.make_parser().parse_args(["t"]).url == "pulsar://there:6650"
    assert read.make_parser().parse_args(["t", "--url", "pulsar://here"]).url == "pulsar://here"


@pytest.mark.parametrize(
    ("reads", "text"),
    [
        (count, "-1"),
        (count, "1.5"),
        (positive, "0"),
        (rate, "nan"),
        (rate, "-1"),
        (rate, "inf"),
        (positive_size, "0"),
        (one_of("shared"), "exclusive"),
        (read._position, "12"),
        (read._position, "-1:-1"),
    ],
)
def test_what_cannot_be_is_refused(reads: Callable[[str], object], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="should be"):
        reads(text)


def test_values_are_read_as_pulsar_client_writes_them() -> None:
    given = consume.make_parser().parse_args(["t", "-s", "s", "-t", "Key_Shared", "-p", "Earliest"])
    assert (given.subscription_type, given.subscription_position) == ("key_shared", "earliest")
    assert read.make_parser().parse_args(["t", "-m", "12:3"]).start_message_id == (12, 3)
    assert produce.make_parser().parse_args(["t", "-p", "a=1,b=2"]).properties == {
        "a": "1",
        "b": "2",
    }
    assert (count("0"), positive("7"), rate("0.5"), positive_size("1k")) == (0, 7, 0.5, 1024)
