"""Proves that moments are printed as a real broker printed them."""

from __future__ import annotations

import pytest

from geminga_protocol.pulsar.messages.timestamps import iso_time


@pytest.mark.parametrize(
    ("timestamp_ms", "printed"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1795232952232, "2026-11-21T03:49:12.232Z"),
        (1795232953330, "2026-11-21T03:49:13.33Z"),
        (1795232953000, "2026-11-21T03:49:13Z"),
    ],
)
def test_times_are_printed_as_java_prints_them(timestamp_ms: int, printed: str) -> None:
    assert iso_time(timestamp_ms) == printed
