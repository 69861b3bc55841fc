"""What a bookie process is told reaches the bookie."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from magnetar_bookie.part_settings import BookiePartSettings
from magnetar_bookie.settings import BookieSettings
from magnetar_server.errors import SettingsError
from magnetar_server.settings import load_settings


def load(**flags: object) -> BookiePartSettings:
    return load_settings(BookiePartSettings, "bookie", environment={}, flags=flags)


def test_told_nothing_a_bookie_has_the_defaults() -> None:
    told = load().bookie()
    paths = {"journal_directory": "data/bookie/journal", "ledger_directory": "data/bookie/ledgers"}
    wanted = {field.name: field.default for field in fields(BookieSettings)} | paths
    assert {name: getattr(told, name) for name in wanted} == wanted


def test_every_setting_reaches_the_bookie() -> None:
    settings = load(
        data_directory=Path("/d"),
        bind_address="0.0.0.0",
        advertised_address="bookie.example",
        port=0,
        bookie_id="bookie-1",
        write_cache_bytes_max=1 << 20,
        read_cache_bytes_max=2 << 20,
        journal_file_bytes_max=3 << 20,
    )
    told = settings.bookie()
    assert (told.host, told.advertised_host, told.port) == ("0.0.0.0", "bookie.example", 0)
    assert (told.bookie_id, told.journal_directory) == ("bookie-1", "/d/journal")
    assert told.ledger_directory == "/d/ledgers"
    assert told.write_cache_bytes_max == 1 << 20
    assert told.read_cache_bytes_max == 2 << 20
    assert told.journal_file_bytes_max == 3 << 20


@pytest.mark.parametrize(("name", "flag"), [("port", "--port"), ("http_port", "--http-port")])
def test_a_value_nobody_can_work_with_is_refused_by_name(name: str, flag: str) -> None:
    with pytest.raises(SettingsError, match=flag):
        load(**{name: 70_000})
