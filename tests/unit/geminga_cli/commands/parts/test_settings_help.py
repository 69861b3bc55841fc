"""Proves that the first page of help is short, and that no setting is missing from the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge

from geminga_autorecovery.config import AutoRecoveryPartConfig
from geminga_bookie.config import BookieConfig
from geminga_broker.config import BrokerConfig
from geminga_cli.commands import standalone
from geminga_cli.commands.parts import autorecovery, bookie, broker, proxy, zookeeper
from geminga_cli.commands.parts.part_command import make_parser
from geminga_cli.commands.parts.settings_help import (
    HelpPages,
    SettingsParser,
    Subject,
    default_words,
    docs_of,
    metavar_of,
)
from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings
from geminga_cli.supervisor.settings import StandaloneSettings
from geminga_proxy.config import ProxyConfig
from geminga_server.config import INLINE, Setting, Upstream, settings_of

COMMANDS: dict[str, tuple[type[Any], HelpPages]] = {
    "autorecovery": (AutoRecoveryPartConfig, autorecovery.PAGES),
    "bookie": (BookieConfig, bookie.PAGES),
    "broker": (BrokerConfig, broker.PAGES),
    "proxy": (ProxyConfig, proxy.PAGES),
    "standalone": (StandaloneSettings, standalone.PAGES),
    "zookeeper": (ZooKeeperPartSettings, zookeeper.PAGES),
}
# A user who asks for help sees all of it in a window of usual size, scrolled once.
FIRST_PAGE_LINES_MAX = 75
FIRST_MAX = 12


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the narrowest usual width."""
    monkeypatch.setenv("COLUMNS", "80")


def names(command: str) -> list[str]:
    return [setting.name for setting in settings_of(COMMANDS[command][0]).values()]


def parser_of(command: str) -> SettingsParser:
    return make_parser(command, *COMMANDS[command])


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_page_is_short_and_names_what_people_need(command: str) -> None:
    page = parser_of(command).format_help()
    first = COMMANDS[command][1].first
    assert len(first) <= FIRST_MAX
    assert len(page.splitlines()) <= FIRST_PAGE_LINES_MAX
    for setting in settings_of(COMMANDS[command][0]).values():
        if setting.name in first:
            assert f"{setting.option} " in page or f"{setting.option}," in page


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_needed_first_are_settings(command: str) -> None:
    assert set(COMMANDS[command][1].first) <= set(names(command))


@pytest.mark.parametrize("command", ["autorecovery", "bookie", "broker", "proxy"])
def test_every_setting_belongs_to_one_subject_of_its_command(command: str) -> None:
    subjects = COMMANDS[command][1].subjects
    found = {
        name: [each.name for each in subjects if each.has(setting)]
        for name, setting in settings_of(COMMANDS[command][0]).items()
    }
    assert {name: subjects for name, subjects in found.items() if len(subjects) != 1} == {}


@pytest.mark.parametrize("command", ["autorecovery", "bookie", "broker", "proxy"])
def test_subjects_are_named_by_words(command: str) -> None:
    for subject in COMMANDS[command][1].subjects:
        assert re.fullmatch("[a-z-]+", subject.name)


@pytest.mark.parametrize("command", ["autorecovery", "bookie", "broker", "proxy"])
def test_all_pages_together_explain_every_setting(command: str) -> None:
    pages = parser_of(command).format_subjects(None)
    missing = [
        setting.name
        for setting in settings_of(COMMANDS[command][0]).values()
        if f"  {setting.option}" not in pages and f", {setting.option}" not in pages
    ]
    assert missing == []
    for subject in COMMANDS[command][1].subjects:
        assert f"{subject.name} - {subject.about}:" in pages


@pytest.mark.parametrize("command", ["standalone", "zookeeper"])
def test_a_command_with_few_settings_has_them_all_on_one_page(command: str) -> None:
    page = parser_of(command).format_help()
    assert [
        s.name for s in settings_of(COMMANDS[command][0]).values() if s.option not in page
    ] == []
    assert "--help-all" not in page


@dataclass(frozen=True)
class Inner:
    """A nested class."""

    entries_max: Annotated[int, Upstream("maxEntries")] = 5
    """How many."""


@dataclass(frozen=True)
class Nameless:
    """A class whose settings have names of their own outside."""

    cache_bytes_max: int = 6
    """How much."""


@dataclass(frozen=True)
class Settings:
    """Two subjects."""

    port: Annotated[int, Upstream("bookiePort", of="BookKeeper")] = 1
    """Where."""
    log: Inner = field(default_factory=Inner)
    memory: Annotated[Nameless, INLINE] = field(default_factory=Nameless)


PAGES = HelpPages(
    "Run it.",
    first=("port",),
    subjects=(
        Subject("network", "ports", ("port",)),
        Subject("log", "entries", ("log.*",)),
        Subject("cache", "memory", ("memory.*",)),
    ),
)


def printed(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        make_parser("broker", Settings, PAGES).parse_args(words)
    told = capsys.readouterr()
    return ended.value.code, told.out, told.err


def test_the_first_page_leads_to_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    code, page, _ = printed(["--help"], capsys)
    assert code == 0
    assert "--port PORT" in page
    assert "--log-entries-max" not in page
    assert "geminga broker --help-all SUBJECT" in page
    assert "  network  ports\n  log      entries\n  cache    memory\n" in page


def test_a_setting_is_shown_in_its_three_spellings(capsys: pytest.CaptureFixture[str]) -> None:
    _, page, _ = printed(["--help"], capsys)
    assert "port below [broker] in the file" in page
    assert "the variable GEMINGA_BROKER_PORT" in page
    assert "the option --port" in page
    _, subject, _ = printed(["--help-all", "log"], capsys)
    assert "--log-entries-max NUMBER" in subject
    words = " ".join(subject.split())
    assert "setting log.entries_max; variable GEMINGA_BROKER_LOG__ENTRIES_MAX" in words
    assert "--port" not in subject


def test_what_upstream_calls_a_setting_is_shown_where_there_is_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, first, _ = printed(["--help"], capsys)
    assert "bookiePort" not in first
    _, page, _ = printed(["--help-all"], capsys)
    words = " ".join(page.split())
    assert "variable GEMINGA_BROKER_PORT; in BookKeeper bookiePort)" in words
    assert "in Pulsar maxEntries)" in words


def test_a_subject_has_all_of_a_group_whatever_its_settings_are_called(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, page, _ = printed(["--help-all", "cache"], capsys)
    assert "--cache-bytes-max BYTES" in page
    assert "--port" not in page


def test_without_a_subject_all_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, page, _ = printed(["--help-all"], capsys)
    assert code == 0
    assert "--port" in page
    assert "--log-entries-max" in page


def test_a_subject_that_there_is_not_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, error = printed(["--help-all", "netwrok"], capsys)
    assert code == 2
    assert "no subject 'netwrok'; there are: network, log, cache" in error


@pytest.mark.parametrize(
    ("name", "kind", "metavar"),
    [
        ("web_port", Annotated[int, Ge(0)], "PORT"),
        ("age_s", float, "SECONDS"),
        ("tick_ms", int, "MILLISECONDS"),
        ("cache_bytes_max", int, "BYTES"),
        ("compaction_bytes_per_s", int, "BYTES"),
        ("heap_max_mib", int, "MIB"),
        ("bind_address", str, "HOST"),
        ("directory", Path, "PATH"),
        ("directories", tuple[Path, ...], "A,B"),
        ("mode", Literal["a", "b"], "a|b"),
        ("entries_max", int, "NUMBER"),
        ("part", float, "NUMBER"),
        ("cluster", str, "TEXT"),
    ],
)
def test_a_value_is_called_what_it_is(name: str, kind: object, metavar: str) -> None:
    assert metavar_of(Setting(name, (name,), kind, None, Settings)) == metavar


PARTS = [AutoRecoveryPartConfig, BookieConfig, BrokerConfig, ProxyConfig, ZooKeeperPartSettings]


@dataclass(frozen=True)
class Above:
    """A class to stand on."""

    one: int = 1
    """What one is."""
    two: int = 2
    # A comment says nothing to users.
    three: int = 3


@dataclass(frozen=True)
class Below(Above):
    """A class with something of its own."""

    two: int = 4
    """What two is, over
    two lines."""


def test_what_stands_below_a_field_is_said_of_it_also_by_who_inherits_it() -> None:
    assert docs_of(Above) == {"one": "What one is."}
    assert docs_of(Below) == {"one": "What one is.", "two": "What two is, over two lines."}


@pytest.mark.parametrize("part", PARTS)
def test_every_setting_says_what_it_does(part: type[Any]) -> None:
    silent = [
        setting.name
        for setting in settings_of(part).values()
        if setting.field not in docs_of(setting.owner)
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("default", "words"),
    [
        (Path("data/bookie"), "data/bookie"),
        ((), "none"),
        ((Path("a"), Path("b")), "a,b"),
        (True, "on"),
        (False, "off"),
        ("", "empty"),
        (0.95, "0.95"),
        (None, "None"),
    ],
)
def test_a_default_is_shown_as_one_would_write_it(default: object, words: str) -> None:
    assert default_words(default) == words
