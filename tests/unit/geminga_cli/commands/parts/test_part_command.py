"""Proves that every setting of a part is an option, and that the part gets what was given."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
from annotated_types import Ge

from geminga_cli.commands.parts.part_command import make_parser, run_part_command
from geminga_cli.commands.parts.settings_help import HelpPages
from geminga_cli.gate import GATE_VARIABLE, Gate


@dataclass(frozen=True)
class LogSettings:
    """A nested class."""

    entries_max: int = 5
    """At most 50 % of what would be possible."""


@dataclass(frozen=True)
class Settings:
    """Every kind of setting there is."""

    name: str
    port: Annotated[int, Ge(0)] = 6650
    age_s: float = 1.5
    directory: Path = Path("data")
    is_synced: bool = True
    hosts: tuple[str, ...] = ()
    log: LogSettings = field(default_factory=LogSettings)


PAGES = HelpPages("Run one.", first=("port",))


class RecordingPart(ModuleType):
    """Notes what it was run with."""

    def __init__(self) -> None:
        super().__init__("recording_part")
        self.given: tuple[Path | None, dict[str, object]] | None = None

    def main(self, file: Path | None, flags: Mapping[str, object]) -> int:
        """As a part's."""
        self.given = file, {name: value for name, value in flags.items() if value is not None}
        return 7


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> RecordingPart:
    made = RecordingPart()
    monkeypatch.setitem(sys.modules, "recording_part", made)
    return made


def run(*words: str) -> int:
    return run_part_command("broker", Settings, ["recording_part"], words, PAGES)


def test_nothing_given_is_nothing_passed_on(part: RecordingPart) -> None:
    assert run() == 7
    assert part.given == (None, {})


def test_options_arrive_under_the_names_of_their_settings_and_in_their_types(
    part: RecordingPart,
) -> None:
    run(
        *("--config", "c.toml", "--name", "n", "--port", "0", "--age-s", "2", "--directory", "/d"),
        *("--no-is-synced", "--hosts", "a, b,", "--log-entries-max", "9"),
    )
    assert part.given == (
        Path("c.toml"),
        {
            "name": "n",
            "port": 0,
            "age_s": 2.0,
            "directory": Path("/d"),
            "is_synced": False,
            "hosts": ("a", "b"),
            "log.entries_max": 9,
        },
    )


def test_help_names_every_option_its_default_and_its_variable() -> None:
    told = " ".join(make_parser("broker", Settings, PAGES).format_help().split())
    assert "--port PORT" in told
    assert "(default: 6650; variable GEMINGA_BROKER_PORT)" in told
    assert "--is-synced, --no-is-synced" in told
    assert "(default: on; variable GEMINGA_BROKER_IS_SYNCED)" in told
    assert "--hosts A,B (default: none;" in told
    assert "--directory PATH (default: data;" in told
    assert "--log-entries-max NUMBER" in told
    assert "At most 50 % of what would be possible. (default: 5; setting log.entries_max;" in told
    assert "GEMINGA_BROKER_LOG__ENTRIES_MAX" in told


@dataclass(frozen=True)
class LongNames:
    """A setting that is written often."""

    data_directory: Path = Path("data")


@pytest.mark.parametrize("option", ["--data-dir", "--data-directory"])
def test_an_option_that_is_written_often_has_a_short_name(option: str) -> None:
    parser = make_parser("bookie", LongNames, HelpPages("Run one.", first=("data_directory",)))
    assert parser.parse_args([option, "/d"]).data_directory == Path("/d")
    assert "--data-dir, --data-directory PATH" in parser.format_help()


def test_half_an_option_is_not_guessed(part: RecordingPart) -> None:
    with pytest.raises(SystemExit):
        run("--por", "1")
    assert part.given is None


def test_a_part_that_is_never_let_go_on_does_not_run(
    part: RecordingPart, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    monkeypatch.setenv(GATE_VARIABLE, gate.variables()[GATE_VARIABLE])
    gate.close()
    assert run() == 0
    assert part.given is None
