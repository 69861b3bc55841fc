"""What a bookie tells Prometheus, under the names of Apache BookKeeper's own bookies.

Hot paths add to plain integers; the families are made from them when somebody scrapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from magnetar_bookie.bookie import Bookie
from magnetar_bookie.latency import Latency

if TYPE_CHECKING:
    from prometheus_client import Metric

QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
MS_PER_S = 1000


class BookieMetrics:
    """Collects from one open bookie."""

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie

    def collect(self) -> Iterable[Metric]:
        """All families, for one scrape."""
        from prometheus_client.core import (  # noqa: PLC0415 - 50 ms, and only who scrapes needs it
            CounterMetricFamily,
            GaugeMetricFamily,
        )

        for name, value in self._gauges():
            yield GaugeMetricFamily(name, name, value=value)
        for name, value in self._counters():
            yield CounterMetricFamily(name, name, value=value)
        bookie = self._bookie
        yield from _summary(
            "bookie_journal_JOURNAL_ADD_ENTRY", bookie.journal.add_latency, is_success=True
        )
        yield from _summary(
            "bookie_journal_JOURNAL_SYNC", bookie.journal.sync_latency, is_success=True
        )
        yield from _summary(
            "bookkeeper_server_READ_ENTRY", bookie.counters.read_latency, is_success=True
        )

    def _gauges(self) -> Iterator[tuple[str, float]]:
        bookie = self._bookie
        storage = bookie.storage
        ledgers, entries = storage.counts.ledgers, storage.counts.entries
        yield "bookie_SERVER_STATUS", 0.0 if storage.is_read_only else 1.0
        yield "bookie_ledgers_count", float(ledgers)
        yield "bookie_entries_count", float(entries)
        yield "bookie_write_cache_size", float(storage.write_cache.used_bytes)
        yield "bookie_read_cache_size", float(storage.read_cache.used_bytes)
        yield "bookie_ledger_writable_dirs", 0.0 if storage.is_read_only else 1.0
        yield "bookie_journal_JOURNAL_QUEUE_SIZE", float(bookie.journal.queued_entries)
        yield "bookkeeper_server_READ_ENTRY_IN_PROGRESS", float(bookie.counters.reads_in_progress)

    def _counters(self) -> Iterator[tuple[str, float]]:
        bookie = self._bookie
        counters, cache = bookie.counters, bookie.storage.read_cache
        yield "bookie_WRITE_BYTES", float(counters.add_bytes)
        yield "bookie_READ_BYTES", float(counters.read_bytes)
        yield "bookie_read_cache_hits", float(cache.hits)
        yield "bookie_read_cache_misses", float(cache.misses)
        yield "bookie_journal_JOURNAL_WRITE_BYTES", float(bookie.journal.written_bytes)
        yield "bookkeeper_server_READ_ENTRY_FENCE_READ", float(counters.fence_reads)
        yield "bookkeeper_server_ADD_ENTRY_REJECTED", float(counters.adds_refused)
        yield "magnetar_bookie_adds", float(counters.adds)
        yield "magnetar_bookie_reads", float(counters.reads)
        yield "magnetar_bookie_journal_groups", float(bookie.journal.groups)


def _summary(name: str, latency: Latency, *, is_success: bool) -> Iterator[Metric]:
    from prometheus_client.core import Metric, Sample  # noqa: PLC0415 - as above

    family = Metric(name, name, "summary")
    labels = {"success": "true" if is_success else "false"}
    for quantile, seconds in zip(QUANTILES, latency.quantiles(QUANTILES), strict=True):
        family.samples.append(
            Sample(name, {**labels, "quantile": str(quantile)}, seconds * MS_PER_S)
        )
    family.samples.append(Sample(f"{name}_count", labels, latency.count))
    family.samples.append(Sample(f"{name}_sum", labels, latency.sum_s * MS_PER_S))
    yield family
