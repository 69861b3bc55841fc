"""Every setting of every part says what it does, in words that come from its settings class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from geminga_autorecovery.config import AutoRecoveryPartConfig
from geminga_bookie.config import BookieConfig
from geminga_broker.config import BrokerConfig
from geminga_cli.commands.setting_words import default_words, words_of
from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings
from geminga_proxy.config import ProxyConfig
from geminga_server.config import settings_of

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
    assert words_of(Above) == {"one": "What one is."}
    assert words_of(Below) == {"one": "What one is.", "two": "What two is, over two lines."}


@pytest.mark.parametrize("part", PARTS)
def test_every_setting_says_what_it_does(part: type[Any]) -> None:
    silent = [
        setting.name
        for setting in settings_of(part).values()
        if setting.field not in words_of(setting.owner)
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
