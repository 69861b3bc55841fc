"""Timestamps as text, in the form that Pulsar uses in statistics."""

from __future__ import annotations

from datetime import UTC, datetime

EPOCH_ISO = "1970-01-01T00:00:00Z"


def iso_time(timestamp_ms: int) -> str:
    """Unix milliseconds as ``2026-11-21T03:49:12.232Z``, the fraction without zeros at its end."""
    if timestamp_ms == 0:
        return EPOCH_ISO
    moment = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    # From the whole number: the quotient above is a float, whose rounding could change a digit.
    fraction = f"{timestamp_ms % 1000:03d}".rstrip("0")
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{fraction}" if fraction else "") + "Z"
