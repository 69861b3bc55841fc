"""Which broker shall own a bundle that no broker owns, and which broker decides that. Pure.

As upstream, the leader chooses. A broker that does not lead redirects the lookup to the leader; the
leader chooses a broker by its ``Placement`` and redirects the lookup there, with authority; the
broker that gets an authoritative lookup acquires the bundle without asking the leader. So there are
two redirects at most. A broker that knows no living leader chooses for itself: lookups go on while
there is none.

    client ─▶ any broker ─(DECIDES)─▶ the leader ─(CHOSEN, authoritative)─▶ the owner to be
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from geminga_broker.ownership.addresses.address import LookupReason, Owner
from geminga_broker.ownership.assignment.bundles import Bundle, broker_of_namespace
from geminga_protocol.records.cluster.brokers import LocalBrokerData

# The load reports of living brokers by broker id (``host:web port``), as far as they are known.
Loads = Mapping[str, LocalBrokerData]


@dataclass(frozen=True, slots=True)
class BrokersView:
    """What one broker knows of all brokers at one time."""

    # Of the living brokers. May be older than ``leader_id`` or newer: the two are read one after
    # the other.
    loads: Loads = field(default_factory=dict[str, LocalBrokerData])
    # None between two leaders. One that is not among the living brokers does not lead any more.
    leader_id: str | None = None


Placement = Callable[[Bundle, Loads], str]
"""Chooses the broker, by its id, that shall acquire a bundle. Called on the broker that leads, once
for each acquisition; the loads must not be empty."""


def evenly_spread(bundle: Bundle, loads: Loads) -> str:
    """The ``Placement`` by hash (rendezvous): whichever broker chooses, the choice is the same, and
    when a broker comes or goes no other bundle's choice changes."""
    # Not ``hash``, which differs from process to process.
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
    """The broker to which a lookup of a bundle that no broker owns goes next, and why.

    ``here`` is the id of this broker: where it is the answer, it acquires the bundle.
    ``authoritative`` lookups were sent here by the leader. A broker that ``is_retired`` is about to
    end. ``destination`` is the broker that an operator, or the load manager, wants to have it.
    """
    # From the strongest rule to the weakest: what only one broker can serve, what was decided
    # elsewhere, what this broker may not decide, what an operator wants, and only then the choice
    # by load.
    #
    # A broker's own namespace (``pulsar/host:port``) is never another's: its health check reads
    # and writes there.
    only = broker_of_namespace(bundle.namespace)
    if only is not None:
        return only, LookupReason.CHOSEN
    # Whatever this broker knows: the leader has chosen, and another redirect might go in a circle.
    if authoritative:
        return here, LookupReason.CHOSEN
    # A retired broker takes a bundle only where no other broker lives.
    if is_retired:
        others = {each: load for each, load in view.loads.items() if each != here}
        # Without this broker the choice below cannot fall on it.
        view = BrokersView(others, view.leader_id)
    leader = view.leader_id
    # A leader that is not registered has ended, or is starting: lookups must not wait for it.
    if leader is not None and leader != here and leader in view.loads:
        return leader, LookupReason.DECIDES
    # This broker leads, or there is no leader.
    if destination is not None and destination in view.loads:
        return destination, LookupReason.CHOSEN
    # A broker that is not registered yet may not see the others either: it takes the bundle.
    is_choosing = bool(view.loads) if is_retired else here in view.loads
    chosen = placement(bundle, view.loads) if is_choosing else here
    return (chosen if chosen in view.loads else here), LookupReason.CHOSEN


def candidate(record: LocalBrokerData, reason: LookupReason) -> Owner:
    """The broker of a registration as the answer to a lookup."""
    # A registration leaves out what its broker does not serve; an ``Owner`` has "" there.
    return Owner(
        record.pulsar_service_url or "",
        record.pulsar_service_url_tls or "",
        record.web_service_url or "",
        record.web_service_url_tls or "",
        is_self=False,
        listeners=record.advertised_listeners,
        reason=reason,
    )
