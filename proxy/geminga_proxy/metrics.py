"""A proxy's metrics, under the names of Pulsar's proxy.

Numbers are read at each scrape; those of workers, as they last reported them. Counters are shown
with and without ``_total``, as Pulsar's proxy does, because dashboards use both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geminga_proxy.proxy import Proxy
from geminga_server.metrics import metric

if TYPE_CHECKING:
    from prometheus_client import Metric

# Names with this prefix are Pulsar's, and must stay as they are; ours begin with ``geminga_proxy``.
PREFIX = "pulsar_proxy_"
# The label of samples where several processes do the work.
WORKER_LABEL = "worker"


# Plain numbers by name, as they travel from a worker to its parent in JSON.
@dataclass(frozen=True, slots=True)
class ProxyNumbers:
    """The numbers of one process, by the names of their metrics."""

    gauges: Mapping[str, float]
    counters: Mapping[str, float]

    @classmethod
    def of(cls, proxy: Proxy) -> ProxyNumbers:
        """The numbers of an open proxy, now."""
        connections, carried = proxy.context.counts, proxy.splices.counts
        counters: dict[str, float] = {
            # ``_total`` is left out here, and added by ``families``.
            f"{PREFIX}new_connections": connections.made,
            f"{PREFIX}rejected_connections": connections.rejected,
            f"{PREFIX}binary_ops": carried.pieces,
            f"{PREFIX}binary_bytes": carried.carried_bytes,
        }
        for name, counts in proxy.lookups.counts.items():
            counters[f"{PREFIX}{name}_requests"] = counts.asked
            counters[f"{PREFIX}rejected_{name}_requests"] = counts.rejected
        gauges: dict[str, float] = {
            f"{PREFIX}active_connections": proxy.connections,
            "geminga_proxy_splices": len(proxy.splices.open),
            # Of this process's own view: workers may see a change of ZooKeeper at different
            # moments.
            "geminga_proxy_brokers": len(proxy.context.brokers.view.service_urls),
        }
        return cls(gauges, counters)


def families(by_worker: Mapping[str, ProxyNumbers]) -> Iterable[Metric]:
    """Yield all families, for one scrape; a proxy of one process is the worker called ""."""
    labelled = [
        ({WORKER_LABEL: worker} if worker else {}, numbers) for worker, numbers in by_worker.items()
    ]
    # A family comes once, with a sample for each worker: Prometheus takes no second one.
    gauges = dict.fromkeys(name for _, numbers in labelled for name in numbers.gauges)
    counters = dict.fromkeys(name for _, numbers in labelled for name in numbers.counters)
    for name in gauges:
        samples = [(name, labels, numbers.gauges[name]) for labels, numbers in labelled]
        yield metric(name, "gauge", samples, f"Pulsar's {name}.")
    for name in counters:
        # Without ``_total`` in its name, too, the family is a counter.
        for shown in (name, f"{name}_total") if name.startswith(PREFIX) else (name,):
            samples = [(shown, labels, numbers.counters[name]) for labels, numbers in labelled]
            yield metric(shown, "counter", samples, f"Pulsar's {shown}.")
