"""Advertised listeners and bind addresses: one broker reached at several addresses.

A listener is a name for the clients that reach the broker in one way, and the URLs that they use
for it (upstream's PIP-61). One of them is the internal one: other brokers, and clients that name no
listener, get its URLs. A bind address is a further port on which the broker listens; clients that
connect to it are answered for its listener without naming it (PIP-95). Both are written
``NAME:SCHEME://HOST:PORT``. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import urlsplit

from geminga_protocol.records.cluster.brokers import AdvertisedListener
from geminga_server.config import Upstream

SCHEMES = ("pulsar", "pulsar+ssl", "http", "https")
TLS_SCHEMES = ("pulsar+ssl", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """How a broker is reached beside its own address; raises ``ValueError`` for what cannot be."""

    advertised_listeners: Annotated[tuple[str, ...], Upstream("advertisedListeners")] = ()
    """Addresses for clients that reach the broker in different ways, each
    `NAME:SCHEME://HOST:PORT`; a lookup is answered with those of the listener that it names."""
    internal_listener_name: Annotated[str, Upstream("internalListenerName")] = ""
    """The listener for other brokers, and for clients that name none; empty: the first one."""
    bind_addresses: Annotated[tuple[str, ...], Upstream("bindAddresses")] = ()
    """Further ports, each `NAME:SCHEME://HOST:PORT`: clients that come by one are answered for the
    listener NAME."""

    # Parsed when the config is made: a broker with a mistake in it must not start. Both settings:
    # parsing the bind addresses parses the advertised listeners on the way.
    def __post_init__(self) -> None:
        parse_bind_addresses(self.bind_addresses, self.advertised)

    @property
    def advertised(self) -> Listeners:
        """The advertised listeners."""
        return parse_listeners(self.advertised_listeners, self.internal_listener_name)

    @property
    def binds(self) -> tuple[BindAddress, ...]:
        """The further ports."""
        return parse_bind_addresses(self.bind_addresses, self.advertised)


@dataclass(frozen=True, slots=True)
class BindAddress:
    """A port that the broker listens on."""

    # The listener for whose clients it answers there; "" is the internal one.
    listener: str
    # One of ``SCHEMES``.
    scheme: str
    host: str
    port: int

    @property
    def is_tls(self) -> bool:
        """Whether connections to it are secured."""
        return self.scheme in TLS_SCHEMES

    @property
    def is_web(self) -> bool:
        """Whether it is for HTTP, and not for the Pulsar protocol."""
        return self.scheme.startswith("http")


@dataclass(frozen=True, slots=True)
class Listeners:
    """A broker's advertised listeners. A broker without any has one address for all clients."""

    # By the listener's name, by scheme. Each scheme at most once for a listener, as its record in
    # ZooKeeper has one field for each.
    urls: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # The name of the internal one.
    internal: str = ""

    def url(self, scheme: str) -> str:
        """The URL for clients that name no listener: the internal one's of this scheme or, where it
        has none, the first that a listener has; "" where no listener has one."""
        # The internal listener may serve the Pulsar protocol only, and another one HTTP. The order
        # of the dictionary is that of the setting, so that "the first" is the first as the operator
        # wrote them.
        in_order = (self.urls.get(self.internal, {}), *self.urls.values())
        return next((each[scheme] for each in in_order if scheme in each), "")

    @property
    def internal_host(self) -> str:
        """The host of the ``pulsar://`` URL for clients that name no listener; "" without one."""
        return urlsplit(self.url("pulsar")).hostname or ""

    @property
    def records(self) -> dict[str, AdvertisedListener]:
        """The listeners as they stand in ZooKeeper."""
        return {
            name: AdvertisedListener(
                broker_service_url=urls.get("pulsar"),
                broker_service_url_tls=urls.get("pulsar+ssl"),
                broker_http_url=urls.get("http"),
                broker_https_url=urls.get("https"),
            )
            for name, urls in self.urls.items()
        }


def parse_listeners(entries: Iterable[str], internal: str = "") -> Listeners:
    """The listeners that ``advertised_listeners`` lists. The first one is the internal one, unless
    ``internal`` names another.

    Raises ``ValueError`` for an entry that is not ``NAME:SCHEME://HOST:PORT``, a second URL of one
    scheme for a listener, an address that two listeners share, an internal one that is not there.
    """
    urls: dict[str, dict[str, str]] = {}
    # By ``host:port``: a request that arrives there says nothing else of its listener. Two URLs of
    # one listener may share an address.
    listener_at: dict[str, str] = {}
    for entry in entries:
        name, scheme, host, port = _parse("advertised_listeners", entry)
        address = f"{host}:{port}"
        if scheme in urls.setdefault(name, {}):
            raise ValueError(f"advertised_listeners: {name} has two URLs {scheme}://; give one")
        if listener_at.setdefault(address, name) != name:
            raise ValueError(
                f"advertised_listeners: {address} belongs to two listeners, {listener_at[address]} "
                f"and {name}; give each an address of its own"
            )
        # The URL as it was written, not as it was parsed: clients get it back unchanged.
        urls[name][scheme] = entry.partition(":")[2].strip()
    if urls and internal and internal not in urls:
        raise ValueError(
            f"internal_listener_name: {internal} is none of the advertised listeners "
            f"({', '.join(urls)})"
        )
    # Without entries and without a name: "", which ``Owner.at_listener`` takes for the broker's own
    # URLs.
    return Listeners(urls, internal or next(iter(urls), ""))


def parse_bind_addresses(entries: Iterable[str], listeners: Listeners) -> tuple[BindAddress, ...]:
    """The addresses that ``bind_addresses`` lists.

    Raises ``ValueError`` for an entry that is not ``NAME:SCHEME://HOST:PORT``, and one whose
    listener is not advertised: every lookup that came by it would fail.
    """
    addresses: list[BindAddress] = []
    # The scheme need not be among those of the listener's URLs. A proxy in front may end TLS: then
    # the listener's URL is ``pulsar+ssl`` and the bind address ``pulsar``.
    for entry in entries:
        address = BindAddress(*_parse("bind_addresses", entry))
        if address.listener not in listeners.urls:
            raise ValueError(
                f"bind_addresses: {entry} is for the listener {address.listener}, which "
                "advertised_listeners does not list"
            )
        addresses.append(address)
    return tuple(addresses)


def _parse(setting: str, entry: str) -> tuple[str, str, str, int]:
    """Name, scheme, host and port of an entry."""
    # The first colon ends the name: URLs have further ones.
    name, _, url = (part.strip() for part in entry.partition(":"))
    # What cannot be parsed becomes an empty URL, which the check below refuses with the same words.
    try:
        parts = urlsplit(url)
        # ``port`` raises for a number above 65,535, and is None where there is none.
        host, port = parts.hostname or "", parts.port or 0
    except ValueError:  # brackets that do not close, a port that is none
        parts, host, port = urlsplit(""), "", 0
    has_more = parts.path.strip("/") or parts.query or parts.fragment
    if not (name and parts.scheme in SCHEMES and host and port) or has_more:
        raise ValueError(
            f"{setting}: {entry!r} is not NAME:SCHEME://HOST:PORT, such as "
            "external:pulsar://broker1.example.org:6650; "
            f"the schemes are {', '.join(SCHEMES)}"
        )
    return name, parts.scheme, host, port
