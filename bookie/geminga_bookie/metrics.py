"""A bookie's metrics, under the names of Apache BookKeeper's own bookies.

Hot paths add to plain integers; the families are made from them at each scrape. The names are fixed
by existing dashboards, also where Prometheus would have counters end in ``_total``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isnan
from typing import TYPE_CHECKING

from geminga_bookie.bookie import Bookie
from geminga_server.metrics import Durations, metric

if TYPE_CHECKING:
    from prometheus_client import Metric

# A name and its value.
Value = tuple[str, float]

QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
# Quantiles speak of the last one to two periods of so many seconds: an old peak is forgotten.
PERIOD_S = 60.0


class BookieMetrics:
    """Collects from one open bookie."""

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie
        self._period_ends_s = bookie.counters.clock.monotonic() + PERIOD_S

    def collect(self) -> Iterable[Metric]:
        """Yield all families, for one scrape."""
        for kind, values in (("gauge", self._gauges()), ("counter", self._counters())):
            for name, value in values:
                yield metric(name, kind, [(name, {}, value)], name)
        counters = self._bookie.counters
        # Several journals count into the same durations.
        journal = self._bookie.journals[0]
        adds_failed = counters.adds_failed + counters.adds_refused
        yield _summary("bookie_journal_JOURNAL_ADD_ENTRY", journal.add_durations, adds_failed)
        yield _summary(
            "bookie_journal_JOURNAL_SYNC",
            journal.sync_durations,
            sum(each.error is not None for each in self._bookie.journals),
        )
        # Upstream measures with and without the wait in its thread pools; here there are none, and
        # both names get the same numbers.
        for name in ("bookkeeper_server_ADD_ENTRY", "bookkeeper_server_ADD_ENTRY_REQUEST"):
            yield _summary(name, journal.add_durations, adds_failed)
        for name in ("bookkeeper_server_READ_ENTRY", "bookkeeper_server_READ_ENTRY_REQUEST"):
            yield _summary(name, counters.read_durations, counters.reads_failed)
        # A new period begins with the scrape that finds the last one over. Nothing but scrapes
        # reads the quantiles, so that no timer is needed.
        now_s = counters.clock.monotonic()
        if now_s >= self._period_ends_s:
            self._period_ends_s = now_s + PERIOD_S
            for each in (journal.add_durations, journal.sync_durations, counters.read_durations):
                each.renew()

    def _gauges(self) -> Iterator[Value]:
        bookie = self._bookie
        storage, journals, counters = bookie.storage, bookie.journals, bookie.counters
        write_cache, read_cache = storage.write_cache, storage.read_cache
        yield "bookie_SERVER_STATUS", float(not storage.is_read_only)
        yield "bookie_ledger_writable_dirs", bookie.ledger_directories.writable_count
        yield "bookie_ledger_num_dirs", len(bookie.ledger_directories)
        for directory in bookie.ledger_directories:
            # Upstream, too, makes a name of the path: ``/data/ledgers`` becomes ``_data_ledgers``.
            word = "".join(letter if letter.isalnum() else "_" for letter in directory.path)
            yield f"bookie_ledger_dir_{word}_usage", directory.usage * 100
        # Upstream's names; "active" is what is in use, the space without it what the files take.
        logs = storage.index.logs
        yield "bookie_ACTIVE_ENTRY_LOG_TOTAL", len(bookie.entry_log.numbers)
        live_bytes = sum(usage.live_bytes for usage in logs.values())
        yield "bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES", live_bytes
        yield "bookie_ENTRY_LOG_SPACE_BYTES", sum(usage.end for usage in logs.values())
        yield "bookie_ACTIVE_LEDGER_TOTAL", storage.counts.ledgers
        new_ledgers = len(storage.ledgers.new_ids())
        yield "bookie_ledgers_count", storage.counts.ledgers + new_ledgers
        yield "bookie_entries_count", storage.counts.entries + write_cache.entry_count
        yield "bookie_write_cache_size", write_cache.used_bytes
        yield "bookie_read_cache_size", read_cache.used_bytes
        # Of several journals together. What forms is queued, what is being written is forced.
        queued = sum(journal.forming.entries for journal in journals)
        yield "bookie_journal_JOURNAL_QUEUE_SIZE", queued
        forced = sum(journal.writing_bytes > 0 for journal in journals)
        yield "bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE", forced
        waiting = sum(len(journal.forming.waiters) for journal in journals)
        yield "bookie_journal_JOURNAL_CB_QUEUE_SIZE", waiting
        # Connections whose sockets are not read for now: their requests wait there.
        blocked = len(bookie.back_pressure.connections) * bookie.back_pressure.is_held
        unanswered = queued + sum(journal.writing_entries for journal in journals)
        yield "bookkeeper_server_ADD_ENTRY_IN_PROGRESS", unanswered
        yield "bookkeeper_server_ADD_ENTRY_BLOCKED", blocked
        yield "bookkeeper_server_READ_ENTRY_IN_PROGRESS", counters.reads_in_progress
        yield "bookkeeper_server_READ_ENTRY_BLOCKED", blocked
        yield "geminga_bookie_connections", len(bookie.back_pressure.connections)
        yield "geminga_bookie_connections_max", bookie.limits.connections_max

    def _counters(self) -> Iterator[Value]:
        bookie = self._bookie
        journals, counters = bookie.journals, bookie.counters
        yield "bookie_WRITE_BYTES", counters.add_bytes
        yield "bookie_READ_BYTES", counters.read_bytes
        yield "bookie_read_cache_hits", bookie.storage.read_cache.hits
        yield "bookie_read_cache_misses", bookie.storage.read_cache.misses
        written_bytes = sum(journal.written_bytes for journal in journals)
        yield "bookie_journal_JOURNAL_WRITE_BYTES", written_bytes
        yield "bookkeeper_server_ADD_ENTRY_REJECTED", counters.adds_refused
        yield "bookkeeper_server_READ_ENTRY_FENCE_READ", counters.fence_reads
        assert bookie.collector is not None
        collected = bookie.collector.collected
        # Dashboards in use ask for both names.
        for suffix in ("TOTAL", "COUNT"):
            yield f"bookie_DELETED_LEDGER_{suffix}", collected.deleted_ledgers
            yield f"bookie_MAJOR_COMPACTION_{suffix}", collected.major_compactions
            yield f"bookie_MINOR_COMPACTION_{suffix}", collected.minor_compactions
        by_deletion_bytes = collected.reclaimed_by_deletion_bytes
        yield "bookie_RECLAIMED_DELETION_SPACE_BYTES", by_deletion_bytes
        by_compaction_bytes = collected.reclaimed_by_compaction_bytes
        yield "bookie_RECLAIMED_COMPACTION_SPACE_BYTES", by_compaction_bytes
        yield "geminga_bookie_garbage_failures_total", collected.failures
        yield "geminga_bookie_compaction_moved_bytes_total", bookie.compactor.moved_bytes
        yield "bookkeeper_server_WRITE_LAC", counters.lac_writes
        yield "bookkeeper_server_READ_LAC", counters.lac_reads
        yield "bookkeeper_server_FORCE_LEDGER", counters.forces
        yield "geminga_bookie_adds_total", counters.adds
        yield "geminga_bookie_reads_total", counters.reads
        yield "geminga_bookie_v3_requests_total", counters.v3_requests
        yield "geminga_bookie_faulty_connections_total", counters.connections_faulty
        yield "geminga_bookie_refused_connections_total", sum(bookie.limits.refused.values())
        yield "geminga_bookie_backpressure_total", bookie.back_pressure.holds
        yield "geminga_bookie_journal_groups_total", sum(journal.groups for journal in journals)
        yield "geminga_bookie_background_faults_total", bookie.background_faults
        yield "geminga_bookie_checkpoints_total", bookie.checkpointer.done
        yield "geminga_bookie_checkpoint_failures_total", bookie.checkpointer.failures
        yield "geminga_bookie_entry_log_written_bytes_total", bookie.entry_log.written_bytes
        yield "geminga_bookie_entry_log_read_bytes_total", bookie.entry_log.read_bytes
        yield "geminga_bookie_damaged_blocks_total", bookie.entry_log.damaged_blocks


def _summary(name: str, durations: Durations, failed: int) -> Metric:
    """Milliseconds of what succeeded; of what failed only the number."""
    done, failure = {"success": "true"}, {"success": "false"}
    summary = durations.summary(QUANTILES, with_present=True)
    # Without a value in this period Prometheus would get NaN, which dashboards draw as a gap.
    quantiles = [
        (name, {**done, "quantile": str(share)}, 0.0 if isnan(bound_ms) else bound_ms)
        for share, bound_ms in summary.quantiles.items()
    ]
    totals = [
        (f"{name}_count", done, summary.count),
        (f"{name}_sum", done, summary.sum_ms),
        (f"{name}_count", failure, failed),
        (f"{name}_sum", failure, 0.0),
    ]
    return metric(name, "summary", [*quantiles, *totals], name)
