"""Metrics of server parts and their exposition to Prometheus.

A part counts in plain attributes, durations in ``Durations`` and ``Histogram``; a ``Meter`` makes
rates of counters. ``PartMetrics`` shows them at ``/metrics``, and ``exposition`` writes the text
where there are too many samples for prometheus_client.
"""

from __future__ import annotations

from geminga_server.metrics.part import (
    CONTENT_TYPE,
    CheckHealth,
    LoopLag,
    PartMetrics,
    metric,
    part_app,
)
from geminga_server.rates.durations import Durations, Histogram, Summary
from geminga_server.rates.meter import Meter

__all__ = [
    "CONTENT_TYPE",
    "CheckHealth",
    "Durations",
    "Histogram",
    "LoopLag",
    "Meter",
    "PartMetrics",
    "Summary",
    "metric",
    "part_app",
]
