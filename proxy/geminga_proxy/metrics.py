"""What a proxy tells Prometheus, under the names of Pulsar's proxy.

Numbers are read when somebody scrapes. Dashboards know the counters with and without ``_total``,
as Pulsar's proxy shows both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from geminga_proxy.proxy import Proxy
from geminga_server.metrics import metric

if TYPE_CHECKING:
    from prometheus_client import Metric

PREFIX = "pulsar_proxy_"


class ProxyMetrics:
    """Collects from one open proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def collect(self) -> Iterable[Metric]:
        """All families, for one scrape."""
        for name, value in self._gauges().items():
            yield metric(name, "gauge", [(name, {}, value)], f"Pulsar's {name}.")
        for name, value in self._counters().items():
            for shown in (name, f"{name}_total"):
                yield metric(shown, "counter", [(shown, {}, value)], f"Pulsar's {shown}.")

    def _gauges(self) -> dict[str, float]:
        proxy = self._proxy
        return {
            f"{PREFIX}active_connections": proxy.connections,
            "geminga_proxy_splices": len(proxy.splices.open),
            "geminga_proxy_brokers": len(proxy.context.brokers.view.service_urls),
        }

    def _counters(self) -> dict[str, float]:
        proxy = self._proxy
        connections, carried = proxy.context.counts, proxy.splices.counts
        counters: dict[str, float] = {
            f"{PREFIX}new_connections": connections.made,
            f"{PREFIX}rejected_connections": connections.rejected,
            f"{PREFIX}binary_ops": carried.pieces,
            f"{PREFIX}binary_bytes": carried.carried_bytes,
        }
        for name, counts in proxy.lookups.counts.items():
            counters[f"{PREFIX}{name}_requests"] = counts.asked
            counters[f"{PREFIX}rejected_{name}_requests"] = counts.rejected
        return counters
