"""What a bookie process is told reaches the bookie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from geminga_autorecovery import AutoRecoveryOptions
from geminga_bookie.part_settings import BookiePartSettings
from geminga_bookie.settings import BookieSettings
from geminga_server.config.loading import load_config
from geminga_server.errors import ConfigError


def load(**flags: object) -> BookiePartSettings:
    return load_config(BookiePartSettings, "bookie", environment={}, flags=flags)


def test_told_nothing_a_bookie_has_the_defaults() -> None:
    told = load().bookie()
    wanted = replace(
        BookieSettings(),
        journal_directories=("data/bookie/journal",),
        ledger_directories=("data/bookie/ledgers",),
    )
    assert told == wanted


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
    assert (told.bookie_id, told.journal_directories) == ("bookie-1", ("/d/journal",))
    assert told.ledger_directories == ("/d/ledgers",)
    assert told.write_cache_bytes_max == 1 << 20
    assert told.read_cache_bytes_max == 2 << 20
    assert told.journal_file_bytes_max == 3 << 20


@pytest.mark.parametrize(("name", "flag"), [("port", "--port"), ("http_port", "--http-port")])
def test_a_value_nobody_can_work_with_is_refused_by_name(name: str, flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        load(**{name: 70_000})


def test_several_directories_may_be_named_also_in_a_variable() -> None:
    environment = {
        "GEMINGA_BOOKIE_JOURNAL_DIRECTORIES": "/j1, /j2",
        "GEMINGA_BOOKIE_LEDGER_DIRECTORIES": "/l1,/l2,/l3",
    }
    told = load_config(BookiePartSettings, "bookie", environment=environment).bookie()
    assert told.journal_directories == ("/j1", "/j2")
    assert told.ledger_directories == ("/l1", "/l2", "/l3")


def test_the_limits_of_garbage_and_space_reach_the_bookie() -> None:
    told = load(
        gc_interval_s=60,
        minor_compaction_threshold=0.3,
        major_compaction_interval_s=0,
        disk_usage_threshold=0.8,
        disk_usage_warn_threshold=0.7,
        compaction_bytes_per_s=5,
        compacts_when_full=True,
    ).bookie()
    assert (told.garbage.interval_s, told.garbage.minor_threshold) == (60, 0.3)
    assert told.garbage.major_interval_s == 0
    assert (told.space.full_at, told.space.nearly_full_at) == (0.8, 0.7)
    assert told.space.writable_again_below == 0.8
    assert told.space.compacts_when_full
    assert told.compaction_bytes_per_s == 5


def test_told_nothing_auto_recovery_is_on_and_has_the_defaults() -> None:
    assert load().auto_recovery_enabled
    assert load().auto_recovery() == AutoRecoveryOptions()


def test_every_setting_reaches_auto_recovery() -> None:
    told = load(
        lost_bookie_recovery_delay_s=1,
        auditor_periodic_bookie_check_interval_s=2,
        auditor_periodic_check_interval_s=3,
        auditor_periodic_placement_policy_check_interval_s=8,
        auditor_periodic_replicas_check_interval_s=9,
        auditor_ledger_verification_percentage=4,
        open_ledger_rereplication_grace_s=5,
        rereplication_entry_batch_size=6,
        replication_bytes_per_s=7,
    ).auto_recovery()
    assert told == AutoRecoveryOptions(
        lost_bookie_recovery_delay_s=1,
        bookie_check_interval_s=2,
        ledger_check_interval_s=3,
        placement_check_interval_s=8,
        replicas_check_interval_s=9,
        verification_percentage=4,
        open_ledger_grace_s=5,
        copy_batch_entries_max=6,
        copy_bytes_per_s=7,
    )
