"""What a bookie process is told, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_bookie.config import BookieConfig, GarbageConfig, SpaceConfig
from geminga_server.config.loading import load_config
from geminga_server.errors import ConfigError


def load(**flags: object) -> BookieConfig:
    return load_config(BookieConfig, "bookie", environment={}, flags=flags)


def test_everything_is_below_the_data_directory_unless_it_is_said_otherwise() -> None:
    told = load()
    assert told.journals == (Path("data/bookie/journal"),)
    assert told.ledgers == (Path("data/bookie/ledgers"),)
    told = load(data_directory=Path("/d"), journal_directories=(Path("/j"),))
    assert (told.journals, told.ledgers) == ((Path("/j"),), (Path("/d/ledgers"),))


def test_clients_are_told_the_bind_address_unless_another_is_advertised() -> None:
    assert load(bind_address="10.0.0.1").advertised_host == "10.0.0.1"
    told = load(bind_address="0.0.0.0", advertised_address="bookie.example")
    assert told.advertised_host == "bookie.example"


@pytest.mark.parametrize(("name", "flag"), [("port", "--port"), ("http_port", "--http-port")])
def test_a_value_out_of_range_is_refused_by_name(name: str, flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        load(**{name: 70_000})


def test_several_directories_may_be_named_also_in_a_variable() -> None:
    environment = {
        "GEMINGA_BOOKIE_JOURNAL_DIRECTORIES": "/j1, /j2",
        "GEMINGA_BOOKIE_LEDGER_DIRECTORIES": "/l1,/l2,/l3",
    }
    told = load_config(BookieConfig, "bookie", environment=environment)
    assert told.journals == (Path("/j1"), Path("/j2"))
    assert told.ledgers == (Path("/l1"), Path("/l2"), Path("/l3"))


def test_garbage_space_and_recovery_are_told_under_plain_names() -> None:
    told = load(
        gc_interval_s=60,
        minor_compaction_threshold=0.3,
        disk_usage_threshold=0.8,
        rereplication_entry_batch_size=6,
    )
    assert told.garbage == GarbageConfig(gc_interval_s=60, minor_compaction_threshold=0.3)
    assert told.space == SpaceConfig(disk_usage_threshold=0.8)
    assert told.auto_recovery == AutoRecoveryConfig(rereplication_entry_batch_size=6)
    assert told.auto_recovery_enabled
