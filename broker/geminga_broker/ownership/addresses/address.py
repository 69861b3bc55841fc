"""Where brokers are reached: this broker's own address, and the address of a bundle's owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from geminga_broker.ownership.errors import ListenerMissing
from geminga_protocol.records.cluster.brokers import AdvertisedListener


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """This broker's id and URLs. An empty URL means that the broker does not serve that protocol.

    Where the broker has named listeners, the URLs are those of the internal listener.
    """

    # ``host:web port``: stays the same as long as the broker keeps its web port. Identifies the
    # broker in ZooKeeper, in REST paths and in metrics. Two living brokers must not have the same:
    # each would take over the nodes of the other.
    broker_id: str
    # ``pulsar://`` and ``http://``; with TLS ``pulsar+ssl://`` and ``https://``.
    broker_url: str
    http_url: str
    broker_url_tls: str = ""
    http_url_tls: str = ""
    # By name, as clients request them.
    listeners: Mapping[str, AdvertisedListener] = field(default_factory=dict)

    @property
    def rest_url(self) -> str:
        """The URL that identifies the broker in records: its HTTP URL if it has one, else HTTPS."""
        return self.http_url or self.http_url_tls


# Each reason is one of the answers of a lookup: CONNECT for the first, REDIRECT for the others.
class LookupReason(Enum):
    """Why the answer to a lookup names a broker."""

    OWNS = "it owns the bundle"
    CHOSEN = "the leader chose it: it acquires the bundle at the next authoritative lookup"
    DECIDES = "it is the leader, which chooses the broker that is to own the bundle"
    PEER = "it is in a peer cluster that serves the namespace; this cluster does not"


@dataclass(frozen=True, slots=True)
class Owner:
    """The answer to a lookup: the owner of a bundle or, where no broker owns it yet, the broker to
    ask next. An empty URL means "not served"."""

    broker_url: str
    broker_url_tls: str
    http_url: str
    http_url_tls: str
    # The owner is this broker.
    is_self: bool
    listeners: Mapping[str, AdvertisedListener] = field(default_factory=dict)
    # Decides between connecting and asking again, and with what authority: see the properties.
    reason: LookupReason = LookupReason.OWNS

    @property
    def is_redirect(self) -> bool:
        """Whether clients must repeat their lookup at that broker instead of connecting to it."""
        return self.reason is not LookupReason.OWNS

    @property
    def is_authoritative(self) -> bool:
        """Whether the repeated lookup tells that broker to acquire the bundle without asking the
        leader again."""
        # A peer cluster has owners and a leader of its own: authority of this cluster means nothing
        # there.
        return self.reason not in (LookupReason.DECIDES, LookupReason.PEER)

    def rest_url(self, *, is_tls: bool) -> str:
        """The URL at which other brokers call its REST side. Where it serves HTTP and HTTPS,
        ``is_tls`` chooses between them; else it is the one that it serves."""
        plain, secured = self.http_url, self.http_url_tls
        return (secured or plain) if is_tls else (plain or secured)

    def at_listener(self, name: str) -> Owner:
        """The owner with the URLs of the listener ``name``; "" is the internal one.

        Only the URLs of the Pulsar protocol change: upstream's answers keep the broker's own HTTP
        URLs. Raises ``ListenerMissing``.
        """
        if not name:
            return self
        # No fallback to the internal listener: the client could not reach its URL.
        listener = self.listeners.get(name)
        if listener is None:
            raise ListenerMissing(f"the broker do not have {name} listener")  # clients know this
        return replace(
            self,
            broker_url=listener.broker_service_url or "",
            broker_url_tls=listener.broker_service_url_tls or "",
        )

    def web_url(self, listener: str, *, is_tls: bool = False) -> str:
        """The URL to which HTTP requests that arrived through ``listener`` are redirected: that
        listener's HTTP URL if it has one, else the broker's own. Requests with TLS are redirected
        to HTTPS where the owner serves it."""
        # Both URLs or none: a listener that serves one of the two protocols is not mixed with the
        # broker's own address, which clients of the listener may not reach.
        advertised = self.listeners.get(listener)
        plain, secured = self.http_url, self.http_url_tls
        if advertised and (advertised.broker_http_url or advertised.broker_https_url):
            plain = advertised.broker_http_url or ""
            secured = advertised.broker_https_url or ""
        return (secured or plain) if is_tls else (plain or secured)


def owner_at(address: BrokerAddress, *, is_self: bool) -> Owner:
    """The broker at ``address`` as an owner."""
    return Owner(
        address.broker_url,
        address.broker_url_tls,
        address.http_url,
        address.http_url_tls,
        is_self,
        address.listeners,
    )


def broker_id_of_url(http_url: str) -> str:
    """``"http://127.0.0.1:8080"`` → ``"127.0.0.1:8080"``: the id of the broker behind a URL."""
    # The scheme does not matter: the id has the port of HTTP, or of HTTPS where there is no other.
    return http_url.partition("://")[2].rstrip("/")
