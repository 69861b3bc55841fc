"""What a load measures: messages, bytes and latencies; and how these are shown. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from geminga_cli.throughput.histogram import Histogram

# The percentiles that are shown.
SHARES = (50.0, 95.0, 99.0, 99.9)
MEGABYTE = 1_000_000


@dataclass(slots=True)
class Figures:
    """The figures of a span of time that began at ``begin_s``."""

    begin_s: float
    # Messages that were stored or received, and the bytes of their contents.
    messages: int = 0
    size_bytes: int = 0
    # Messages that were not stored.
    failed: int = 0
    latencies: Histogram = field(default_factory=Histogram)

    def summary(self, now_s: float) -> dict[str, Any]:
        """All figures until now, for programs; without messages, latencies are ``None``."""
        # Not 0: a load may end in the instant in which it begins.
        seconds = max(now_s - self.begin_s, 1e-9)
        latencies = self.latencies
        names = [f"p{share:g}" for share in SHARES]
        values = [latencies.mean_us(), *latencies.percentiles_us(*SHARES), float(latencies.max_us)]
        milliseconds = [round(each / 1000, 3) if latencies.count else None for each in values]
        return {
            "seconds": round(seconds, 3),
            "messages": self.messages,
            "bytes": self.size_bytes,
            "failed": self.failed,
            "messagesPerSecond": round(self.messages / seconds, 1),
            "megabytesPerSecond": round(self.size_bytes / seconds / MEGABYTE, 3),
            "latencyMs": dict(zip(["mean", *names, "max"], milliseconds, strict=True)),
        }


class Meter:
    """Counts for a whole load, and for the period since the last progress line.

    Messages before ``begin_s``, the end of the warm-up, are not counted.
    """

    def __init__(self, begin_s: float) -> None:
        self._begin_s = begin_s
        # Both count the same messages; ``_period`` is replaced at each progress line.
        self.whole = Figures(begin_s)
        self._period = Figures(begin_s)

    def add(self, now_s: float, latency_s: float, size_bytes: int) -> None:
        """Count a message of that size, which was stored or received now."""
        # By the time of the receipt: a message that was sent in the warm-up and stored after it
        # counts.
        if now_s < self._begin_s:
            return
        # Kept in integers: a run of days must not lose the small ones in a sum of floats.
        latency_us = round(latency_s * 1_000_000)
        for figures in (self.whole, self._period):
            figures.messages += 1
            figures.size_bytes += size_bytes
            figures.latencies.add(latency_us)

    def fail(self) -> None:
        """Count a message that failed, even during the warm-up."""
        self.whole.failed += 1
        self._period.failed += 1

    def end_period(self, now_s: float) -> dict[str, Any]:
        """End the period now, begin the next one, and return the figures of the one that ended."""
        summary = self._period.summary(now_s)
        # During the warm-up the next period begins at its end, or rates would be too low.
        self._period = Figures(max(now_s, self._begin_s))
        return summary


def show_figures(summary: dict[str, Any]) -> str:
    """The figures in one line, for people."""
    latencies = ", ".join(
        f"{name} {'-' if value is None else f'{value:.3f}'}"
        for name, value in summary["latencyMs"].items()
    )
    failed = f"  failed: {summary['failed']}" if summary["failed"] else ""
    return (
        f"{summary['messages']} messages in {summary['seconds']:.1f} s  "
        f"{summary['messagesPerSecond']:.1f} msg/s  {summary['megabytesPerSecond']:.3f} MB/s  "
        f"latency in ms: {latencies}{failed}"
    )
