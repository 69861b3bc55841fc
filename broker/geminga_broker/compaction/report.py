"""What is reported of a topic's compactions: the last one, and all of them together. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from geminga_broker.managed_ledger.writing.write_latency import write_latency_histogram
from geminga_server.metrics import Histogram
from geminga_server.metrics.exposition import Gauge

# The duration that rates are computed with, at least: a clock may see none at all.
DURATION_S_MIN = 0.001


class CompactionStatus(StrEnum):
    """``LongRunningProcessStatus.Status`` of Apache Pulsar."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


@dataclass(slots=True)
class Progress:
    """What one compaction has done so far."""

    # Payload bytes, of both phases.
    bytes_read: int = 0
    bytes_written: int = 0
    # Messages that do not survive, known when the first phase is over.
    removed: int = 0
    entries_written: int = 0


@dataclass(slots=True)
class CompactionReport:
    """The report on one topic. Times are Unix time in ms, 0 for never. Totals count since the topic
    was loaded; rates (bytes a second) and what is left are those of the last compaction."""

    status: CompactionStatus = CompactionStatus.NOT_RUN
    last_error: str = ""
    last_removed: int = 0
    last_succeeded_ms: int = 0
    last_failed_ms: int = 0
    last_duration_ms: Annotated[int, Gauge("pulsar_compaction_duration_time_in_mills")] = 0
    removed_total: Annotated[int, Gauge("pulsar_compaction_removed_event_count")] = 0
    succeeded_total: Annotated[int, Gauge("pulsar_compaction_succeed_count")] = 0
    failed_total: Annotated[int, Gauge("pulsar_compaction_failed_count")] = 0
    read_bytes_rate: Annotated[float, Gauge("pulsar_compaction_read_throughput")] = 0.0
    write_bytes_rate: Annotated[float, Gauge("pulsar_compaction_write_throughput")] = 0.0
    entries_left: Annotated[int, Gauge("pulsar_compaction_compacted_entries_count")] = 0
    bytes_left: Annotated[int, Gauge("pulsar_compaction_compacted_entries_size")] = 0
    # How long entries took to be written, in the last stats period and in this one. None where
    # nothing was written: a histogram for each of very many topics would take its memory.
    _latency_shown: Histogram | None = None
    _latency_present: Histogram | None = None

    @property
    def write_latency_ms(self) -> Histogram:
        """How long entries took to be written, in the last stats period."""
        return self._latency_shown or write_latency_histogram()

    def wrote(self, entries: int, duration_ms: float) -> None:
        """Count ``entries`` that were durable after ``duration_ms``."""
        if self._latency_present is None:
            self._latency_present = write_latency_histogram()
        self._latency_present.add(duration_ms, entries)

    def renew(self) -> None:
        """End the stats period and show it from now on."""
        self._latency_shown, self._latency_present = self._latency_present, None

    def succeeded(self, now_ms: int, duration_s: float, progress: Progress) -> None:
        """Note that the compaction is done."""
        # A run that found nothing to do comes here, too, with an empty progress.
        self.status = CompactionStatus.SUCCESS
        self.last_succeeded_ms = now_ms
        self.last_duration_ms = round(duration_s * 1000)
        self.last_removed = progress.removed
        # Totals are of all runs that went well: what a failed one removed is in no ledger.
        self.removed_total += progress.removed
        self.succeeded_total += 1
        # What the ledger in force has, not what this run added.
        self.entries_left = progress.entries_written
        self.bytes_left = progress.bytes_written
        self.read_bytes_rate = progress.bytes_read / max(duration_s, DURATION_S_MIN)
        self.write_bytes_rate = progress.bytes_written / max(duration_s, DURATION_S_MIN)

    def failed(self, now_ms: int, duration_s: float, reason: str) -> None:
        """Note that the compaction failed for ``reason``; what is in force stays so."""
        self.status = CompactionStatus.ERROR
        self.last_error = reason
        self.last_failed_ms = now_ms
        self.last_duration_ms = round(duration_s * 1000)
        self.failed_total += 1
