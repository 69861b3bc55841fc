"""Where brokers are reached: this broker's own address, and the address of a bundle's owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from geminga_broker.ownership.errors import ListenerMissing
from geminga_protocol.records.cluster.brokers import AdvertisedListener


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """This broker's id and URLs; an empty URL means "not served".

    The URLs are those of the internal listener, where the broker has listeners by name.
    """

    # ``host:web port``: stays the same as long as the broker keeps its web port.
    broker_id: str
    broker_url: str
    http_url: str
    broker_url_tls: str = ""
    http_url_tls: str = ""
    listeners: Mapping[str, AdvertisedListener] = field(default_factory=dict)

    @property
    def rest_url(self) -> str:
        """The REST URL by which records identify the broker: without TLS where it serves that."""
        return self.http_url or self.http_url_tls


class LookupReason(Enum):
    """Why a lookup names a broker."""

    OWNS = "it owns the bundle"
    CHOSEN = "it is to own the bundle, and acquires it when it is asked with authority"
    DECIDES = "it leads the brokers, and chooses which of them is to own the bundle"
    PEER = "its cluster serves the namespace, which this cluster does not"


@dataclass(frozen=True, slots=True)
class Owner:
    """The answer to a lookup: the owner of a bundle or, where no broker owns it yet, the broker to
    ask next. An empty URL means "not served"."""

    broker_url: str
    broker_url_tls: str
    http_url: str
    http_url_tls: str
    # It is this broker.
    is_self: bool
    listeners: Mapping[str, AdvertisedListener] = field(default_factory=dict)
    reason: LookupReason = LookupReason.OWNS

    @property
    def is_redirect(self) -> bool:
        """Whether clients are to repeat their lookup at that broker, and not to connect to it."""
        return self.reason is not LookupReason.OWNS

    @property
    def is_authoritative(self) -> bool:
        """Whether the repeated lookup tells that broker to acquire the bundle without asking the
        leader again."""
        return self.reason not in (LookupReason.DECIDES, LookupReason.PEER)

    def rest_url(self, *, is_tls: bool) -> str:
        """The URL at which other brokers call its REST side: with TLS or without as they want it,
        where it serves both, else as it serves it."""
        plain, secured = self.http_url, self.http_url_tls
        return (secured or plain) if is_tls else (plain or secured)

    def at_listener(self, name: str) -> Owner:
        """The owner with the URLs of that listener; "" is the internal one.

        Only the URLs of the Pulsar protocol change: upstream's answers keep the broker's own URLs
        of HTTP. Raises ``ListenerMissing``.
        """
        if not name:
            return self
        # Not the internal one's URL instead: the client could not reach it.
        listener = self.listeners.get(name)
        if listener is None:
            raise ListenerMissing(name)
        return replace(
            self,
            broker_url=listener.broker_service_url or "",
            broker_url_tls=listener.broker_service_url_tls or "",
        )

    def web_url(self, listener: str, *, is_tls: bool = False) -> str:
        """The URL to which HTTP requests that came by that listener are redirected: the listener's
        own where the owner has one for it; HTTPS for requests with TLS where the owner serves it.
        """
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
    return http_url.partition("://")[2].rstrip("/")
