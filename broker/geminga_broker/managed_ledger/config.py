"""How logs and their cache are kept, with upstream's defaults where upstream has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from geminga_protocol.bookkeeper.codes import FRAME_BYTES_MAX_DEFAULT
from geminga_server.config import INTERNAL, Upstream

MIB = 1024 * 1024
# What the broker can write in front of entries, by the names of upstream's classes for it.
Interceptor = Literal[
    "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor",
    "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
]
TIME_INTERCEPTOR: Interceptor = (
    "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor"
)
INDEX_INTERCEPTOR: Interceptor = "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """How much of the newest entries is kept in memory, and for how long."""

    # Upstream's default is a fifth of the JVM's direct memory. Delivering from it costs a sixth of
    # the CPU of reading from a bookie (0.8 us against 4.5 for 1 KiB in batches), so a backlog of
    # some seconds of publishing is to fit. What no subscription reads at the tail is evicted after
    # a minute.
    cache_bytes_max: Annotated[int, Ge(MIB), Upstream("managedLedgerCacheSizeMB", MIB)] = 256 * MIB
    """The newest entries in memory, from which consumers are served that keep up."""
    cache_watermark: Annotated[
        float, Gt(0), Le(1), Upstream("managedLedgerCacheEvictionWatermark")
    ] = 0.9
    """The cache is emptied to this part of its bound."""
    cache_age_max_s: Annotated[
        float, Gt(0), Upstream("managedLedgerCacheEvictionTimeThresholdMillis", 0.001)
    ] = 1.0
    """How long an entry stays in the cache that every subscription was sent."""
    cache_wanted_age_max_s: Annotated[float, Gt(0)] = 60.0
    """How long an entry stays in the cache that some subscription is still to be sent."""


@dataclass(frozen=True, slots=True)
class ManagedLedgerConfig:
    """How logs are cut into ledgers and how cursors are stored.

    Where upstream writes a cursor at most once a second (managedLedgerDefaultMarkDeleteRateLimit)
    and so forgets up to a second of acknowledgements in a crash, ours waits
    ``cursor_flush_delay_s`` for others to share a write, and not at all where a receipt is wanted.
    """

    ensemble_size: Annotated[int, Ge(1), Upstream("managedLedgerDefaultEnsembleSize")] = 1
    """On how many bookies a ledger lies, where its namespace does not say."""
    write_quorum: Annotated[int, Ge(1), Upstream("managedLedgerDefaultWriteQuorum")] = 1
    """On how many of them each entry is stored."""
    ack_quorum: Annotated[int, Ge(1), Upstream("managedLedgerDefaultAckQuorum")] = 1
    """How many of these must have synced it before it is confirmed."""
    ledger_entries_max: Annotated[int, Gt(0), Upstream("managedLedgerMaxEntriesPerLedger")] = 50_000
    """A ledger is full with so many entries,"""
    ledger_bytes_max: Annotated[
        int, Gt(0), Upstream("managedLedgerMaxSizePerLedgerMbytes", MIB)
    ] = 2048 * MIB
    """or with so many bytes."""
    ledger_age_min_s: Annotated[
        float, Ge(0), Upstream("managedLedgerMinLedgerRolloverTimeMinutes", 60)
    ] = 10 * 60.0
    """Not even a full ledger is replaced before."""
    ledger_age_max_s: Annotated[
        float, Gt(0), Upstream("managedLedgerMaxLedgerRolloverTimeMinutes", 60)
    ] = 240 * 60.0
    """A ledger with entries is always replaced after."""
    retention_time_ms: Annotated[int, Ge(-1), Upstream("defaultRetentionTimeInMinutes", 60_000)] = 0
    """How long ledgers are kept that all cursors have passed, where their namespace does not say;
    -1: for ever."""
    retention_bytes: Annotated[int, Ge(-1), Upstream("defaultRetentionSizeInMB", MIB)] = 0
    """How much of them is kept; -1: all."""
    sweep_period_s: Annotated[float, Gt(0), Upstream("retentionCheckIntervalInSeconds")] = 120.0
    """How often the broker looks for old ledgers in all logs."""
    cursor_ledger_entries_max: Annotated[
        int, Gt(0), Upstream("managedLedgerCursorMaxEntriesPerLedger")
    ] = 50_000
    """A cursor's ledger is replaced with so many entries,"""
    cursor_ledger_age_max_s: Annotated[
        float, Gt(0), Upstream("managedLedgerCursorRolloverTimeInSeconds")
    ] = 4 * 3600.0
    """or at this age."""
    cursor_flush_delay_s: Annotated[float, Ge(0)] = 0.1
    """How long an acknowledgement may wait to share a write with others; one that asks for a
    receipt does not wait."""
    cursor_bytes_per_s_max: Annotated[int, Gt(0)] = 4 * MIB
    """A cursor with a great many holes rests after a write, so that it writes no more than this."""
    cursor_ranges_max: Annotated[
        int, Gt(0), Upstream("managedLedgerMaxUnackedRangesToPersistInMetadataStore")
    ] = 1000
    """With more ranges a cursor is kept as bits, in its ledger, not in ZooKeeper."""
    cursor_batches_max: Annotated[
        int, Gt(0), Upstream("managedLedgerMaxBatchDeletedIndexToPersist")
    ] = 10_000
    """So many batches acknowledged in part are kept."""
    cursor_redelivery_counts: bool = True
    """How often messages of Shared and Key_Shared subscriptions were given back is kept with the
    cursor; otherwise it is forgotten with the last consumer, as upstream does."""
    cursor_redelivery_delay_s: Annotated[float, Gt(0)] = 1.0
    """How long such a count may wait to be kept, and how often they are written by themselves."""
    retry_first_s: Annotated[float, Gt(0)] = 0.1
    """The first pause before the broker tries again what failed; it doubles each time."""
    retry_limit_s: Annotated[float, Gt(0)] = 5.0
    """The longest such pause."""
    entry_bytes_max: Annotated[int, Gt(0)] = FRAME_BYTES_MAX_DEFAULT - 1024
    """The largest entry: a bookie's frame with room for the entry's own head."""
    read_bytes_max: Annotated[int, Gt(0), Upstream("dispatcherMaxReadSizeBytes")] = MIB
    """Bytes that are read from bookies at once."""
    read_entries_max: Annotated[int, Gt(0), Upstream("dispatcherMaxReadBatchSize")] = 1000
    """Entries that are read from bookies at once."""
    fetched_bytes_max: Annotated[int, Gt(0)] = 128 * MIB
    """What all subscriptions together keep of entries that were read from bookies and not sent."""
    # Ledgers of a log that are kept open to be read: cursors that catch up at different places need
    # one each. A reader is some hundred bytes; one too few costs an open for every read.
    readers_max: Annotated[int, INTERNAL] = 16
