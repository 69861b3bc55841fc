"""Which broker shall own a bundle that no broker owns: pure choice, injected into ``Ownership``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from geminga_broker.ownership.bundles import Bundle, broker_of_namespace
from geminga_protocol.records.brokers import LocalBrokerData

# The load reports of living brokers by broker id (``host:web port``), as far as they are known.
Loads = Mapping[str, LocalBrokerData]


class Placement(Protocol):
    """Decides for one broker, from what this broker knows; it is asked once per acquisition."""

    def choose(self, bundle: Bundle, loads: Loads) -> str:
        """The id of the broker that shall acquire ``bundle``. Asks nothing, waits for nothing."""
        ...


class AskedBroker:
    """Each bundle goes to the broker that was asked for it first; the loads do not matter.

    A broker's own namespace (``pulsar/host:port``) is that broker's, as any placement has to have
    it: its health check reads and writes there.
    """

    def __init__(self, broker_id: str) -> None:
        self._broker_id = broker_id

    def choose(self, bundle: Bundle, loads: Loads) -> str:
        """As ``Placement.choose``."""
        del loads
        return broker_of_namespace(bundle.namespace) or self._broker_id
