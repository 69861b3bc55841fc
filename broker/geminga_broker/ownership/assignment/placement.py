"""Which broker shall own a bundle that no broker owns, and which broker decides that: pure.

As upstream, the leader chooses. A broker that does not lead sends who asks to the leader; the
leader chooses a broker by its ``Placement`` and sends who asks there, with authority: the broker
that is asked with authority acquires the bundle, and asks nobody. So there are two redirects at
most. A broker that knows no living leader chooses for itself, for lookups go on while there is
none.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from geminga_broker.ownership.addresses.address import LookupReason, Owner
from geminga_broker.ownership.assignment.bundles import Bundle, broker_of_namespace
from geminga_protocol.records.brokers import LocalBrokerData

# The load reports of living brokers by broker id (``host:web port``), as far as they are known.
Loads = Mapping[str, LocalBrokerData]


@dataclass(frozen=True, slots=True)
class BrokersView:
    """What one broker knows of all: the living ones with their load, and which of them leads.

    A leader that is not among the living ones does not lead any more.
    """

    loads: Loads = field(default_factory=dict[str, LocalBrokerData])
    leader_id: str | None = None


class Placement(Protocol):
    """Chooses for the leader, from what this broker knows; it is asked once per acquisition."""

    def choose(self, bundle: Bundle, loads: Loads) -> str:
        """The id of the broker that shall acquire ``bundle``. Asks nothing, waits for nothing."""
        ...


class EvenlySpread:
    """Bundles are spread over the living brokers by hash (rendezvous): whichever broker chooses,
    the choice is the same, and when a broker comes or goes no other bundle's choice changes."""

    def choose(self, bundle: Bundle, loads: Loads) -> str:
        """As ``Placement.choose``; ``loads`` must not be empty."""
        name = str(bundle)
        return max(loads, key=lambda broker_id: zlib.crc32(f"{broker_id} {name}".encode()))


def place(
    bundle: Bundle,
    here: str,
    view: BrokersView,
    placement: Placement,
    *,
    authoritative: bool,
    is_retired: bool = False,
    destination: str | None = None,
) -> tuple[str, LookupReason]:
    """The broker that is to be asked for a bundle that no broker owns, and as what.

    ``here`` is the id of this broker: where it is named, it acquires the bundle. One that is
    retired, which is about to end, names itself only where no other broker lives. Where it is this
    broker that chooses, ``destination`` goes before its placement, if it lives. A broker's own
    namespace (``pulsar/host:port``) is that broker's, whatever is asked: its health check reads and
    writes there.
    """
    only = broker_of_namespace(bundle.namespace)
    if only is not None:
        return only, LookupReason.CHOSEN
    if authoritative:
        return here, LookupReason.CHOSEN
    if is_retired:
        others = {each: load for each, load in view.loads.items() if each != here}
        view = BrokersView(others, view.leader_id)
    leader = view.leader_id
    if leader is not None and leader != here and leader in view.loads:
        return leader, LookupReason.DECIDES
    # This broker leads, or there is no leader. Not yet registered, it knows none but itself.
    if destination is not None and destination in view.loads:
        return destination, LookupReason.CHOSEN
    is_choosing = bool(view.loads) if is_retired else here in view.loads
    chosen = placement.choose(bundle, view.loads) if is_choosing else here
    return (chosen if chosen in view.loads else here), LookupReason.CHOSEN


def candidate(record: LocalBrokerData, reason: LookupReason) -> Owner:
    """The broker of a registration, as one that is to be asked for a bundle."""
    return Owner(
        record.pulsar_service_url or "",
        record.pulsar_service_url_tls or "",
        record.web_service_url or "",
        record.web_service_url_tls or "",
        is_self=False,
        listeners=record.advertised_listeners,
        reason=reason,
    )
