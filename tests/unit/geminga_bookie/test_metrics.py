"""A bookie's metrics have every name that dashboards ask for, and true values."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.geminga_bookie.fakes import KEY, make_add
from tests.unit.geminga_bookie.garbage_rig import NEVER, add, register
from tests.unit.geminga_bookie.host import CONFIG, Host

from geminga_bookie.bookie import Bookie
from geminga_bookie.metrics import PERIOD_S, BookieMetrics
from geminga_protocol.bookkeeper.v2 import LAST_ENTRY, Flag, encode_read
from geminga_simulation.event_loop.clock import SimulatedClock

# The bookie's part of the names that the shipped dashboards ask for.
DASHBOARD_NAMES = [
    "bookie_SERVER_STATUS",
    "bookie_WRITE_BYTES",
    "bookie_READ_BYTES",
    "bookie_ledgers_count",
    "bookie_entries_count",
    "bookie_write_cache_size",
    "bookie_read_cache_size",
    "bookie_read_cache_hits",
    "bookie_read_cache_misses",
    "bookie_ledger_writable_dirs",
    "bookie_ledger_dir_ledgers_usage",
    "bookie_DELETED_LEDGER_TOTAL",
    "bookie_MAJOR_COMPACTION_TOTAL",
    "bookie_MINOR_COMPACTION_TOTAL",
    "bookie_RECLAIMED_DELETION_SPACE_BYTES",
    "bookie_RECLAIMED_COMPACTION_SPACE_BYTES",
    "bookie_DELETED_LEDGER_COUNT",
    "bookie_MAJOR_COMPACTION_COUNT",
    "bookie_journal_JOURNAL_ADD_ENTRY",
    "bookie_journal_JOURNAL_SYNC",
    "bookie_journal_JOURNAL_QUEUE_SIZE",
    "bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE",
    "bookie_journal_JOURNAL_CB_QUEUE_SIZE",
    "bookie_journal_JOURNAL_WRITE_BYTES",
    "bookkeeper_server_ADD_ENTRY",
    "bookkeeper_server_ADD_ENTRY_REQUEST",
    "bookkeeper_server_READ_ENTRY",
    "bookkeeper_server_READ_ENTRY_REQUEST",
    "bookkeeper_server_ADD_ENTRY_IN_PROGRESS",
    "bookkeeper_server_ADD_ENTRY_BLOCKED",
    "bookkeeper_server_ADD_ENTRY_REJECTED",
    "bookkeeper_server_READ_ENTRY_IN_PROGRESS",
    "bookkeeper_server_READ_ENTRY_BLOCKED",
    "bookkeeper_server_READ_ENTRY_FENCE_READ",
    "bookkeeper_server_WRITE_LAC",
    "bookkeeper_server_READ_LAC",
    "bookkeeper_server_FORCE_LEDGER",
]

Samples = dict[str, float]


def scrape(of: Bookie | BookieMetrics) -> Samples:
    """Every sample by its name and labels, through the text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BookieMetrics(of) if isinstance(of, Bookie) else of)
    samples: Samples = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return samples


async def test_every_name_of_the_dashboards_is_there() -> None:
    async with Host().bookie() as bookie:
        names = {name.partition("{")[0] for name in scrape(bookie)}
        assert set(DASHBOARD_NAMES) <= names


async def test_the_values_are_true() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        await client.ask(*(make_add(1, number) for number in range(10)))
        await bookie.checkpointer.run()
        await client.ask(make_add(2, 0), make_add(1, 10, key=b"x" * 20))
        await client.ask(*(encode_read(1, number) for number in range(10)))
        await client.ask(encode_read(2, 0), encode_read(9, 0))
        await client.ask(encode_read(2, LAST_ENTRY, int(Flag.FENCING), KEY))
        samples = scrape(bookie)
    assert samples["bookie_SERVER_STATUS"] == 1
    assert samples["bookie_ledgers_count"] == 2
    assert samples["bookie_entries_count"] == 11
    assert samples["bookie_ledger_dir_ledgers_usage"] == 50
    assert samples["bookie_READ_BYTES"] == 12 * 43
    assert samples["bookie_WRITE_BYTES"] == 11 * (28 + 43)
    assert samples["bookkeeper_server_ADD_ENTRY_count{success=true}"] == 12  # a fence is one
    assert samples["bookkeeper_server_ADD_ENTRY_count{success=false}"] == 1
    assert samples["bookkeeper_server_READ_ENTRY_count{success=true}"] == 12
    assert samples["bookkeeper_server_READ_ENTRY_count{success=false}"] == 1
    assert samples["bookkeeper_server_READ_ENTRY_FENCE_READ"] == 1
    assert samples["bookkeeper_server_READ_ENTRY_IN_PROGRESS"] == 0
    assert samples["bookkeeper_server_ADD_ENTRY_IN_PROGRESS"] == 0
    assert samples["bookie_read_cache_hits"] == 9
    assert samples["geminga_bookie_adds_total"] == 11
    assert samples["geminga_bookie_journal_groups_total"] == 3
    assert samples["geminga_bookie_connections"] == 1
    assert "bookie_journal_JOURNAL_SYNC{quantile=0.99,success=true}" in samples


async def test_several_journals_and_directories_are_counted_together() -> None:
    host = Host(
        CONFIG,
        journal_directories=(Path("/j0"), Path("/j1")),
        ledger_directories=(Path("/l0"), Path("/l1")),
    )
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        await client.ask(make_add(0, 0), make_add(1, 0), make_add(2, 0))
        samples = scrape(bookie)
    assert samples["bookie_journal_JOURNAL_ADD_ENTRY_count{success=true}"] == 3
    assert samples["geminga_bookie_journal_groups_total"] == 2
    assert samples["bookie_journal_JOURNAL_WRITE_BYTES"] > 3 * 71
    assert samples["bookie_ledger_num_dirs"] == samples["bookie_ledger_writable_dirs"] == 2
    assert samples["bookie_ledger_dir__l0_usage"] == samples["bookie_ledger_dir__l1_usage"] == 50


async def test_what_was_collected_is_counted() -> None:
    host = Host(CONFIG, garbage=NEVER, entry_log_bytes_max=1, compaction_bytes_per_s=0.0)
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 2)
        await add(bookie, client, 1, 0, 5)
        await add(bookie, client, 2, 0, 5)
        before = scrape(bookie)
        await bookie.force_gc()
        samples = scrape(bookie)
    assert samples["bookie_DELETED_LEDGER_TOTAL"] == samples["bookie_DELETED_LEDGER_COUNT"] == 1
    assert samples["bookie_MAJOR_COMPACTION_TOTAL"] == 1
    assert samples["bookie_RECLAIMED_DELETION_SPACE_BYTES"] > 1000
    assert samples["bookie_ACTIVE_LEDGER_TOTAL"] == samples["bookie_ledgers_count"] == 1
    assert samples["bookie_ACTIVE_ENTRY_LOG_TOTAL"] < before["bookie_ACTIVE_ENTRY_LOG_TOTAL"]
    live, all_of_it = "bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES", "bookie_ENTRY_LOG_SPACE_BYTES"
    assert 0 < samples[live] < before[live]
    assert samples[live] < samples[all_of_it]


async def test_a_read_only_bookie_says_so() -> None:
    host = Host()
    async with host.bookie() as bookie:
        host.journal_disk.fail("sync", errno.EIO)
        await host.network.connect_client().ask(make_add(1, 0))
        samples = scrape(bookie)
    assert samples["bookie_SERVER_STATUS"] == 0
    assert samples["bookie_ledger_writable_dirs"] == 1
    assert samples["bookie_journal_JOURNAL_SYNC_count{success=false}"] == 1


@pytest.mark.parametrize("directory", ["/data/b-1/ledgers"])
async def test_a_directory_is_named_in_letters_prometheus_takes(directory: str) -> None:
    async with Host(ledger_directories=(Path(directory),)).bookie() as bookie:
        assert scrape(bookie)["bookie_ledger_dir__data_b_1_ledgers_usage"] == 50


async def test_quantiles_are_of_the_last_one_to_two_periods() -> None:
    name = "bookie_journal_JOURNAL_SYNC{quantile=1.0,success=true}"
    async with Host().bookie() as bookie:
        bookie.counters.clock = clock = SimulatedClock()
        metrics, durations = BookieMetrics(bookie), bookie.journals[0].sync_durations
        assert scrape(metrics)[name] == 0, "nothing was synced yet"
        durations.add(500.0)
        clock.advance(PERIOD_S)
        assert scrape(metrics)[name] == pytest.approx(500, rel=0.1)
        durations.add(2.0)
        clock.advance(PERIOD_S)
        assert scrape(metrics)[name] == pytest.approx(500, rel=0.1)
        assert scrape(metrics)[name] == pytest.approx(2, rel=0.1)
        assert durations.count == 2
