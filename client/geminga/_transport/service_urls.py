"""Service URLs, and the addresses and routes of brokers that they lead to.

``pulsar://host:port`` names brokers, ``pulsar+ssl://`` brokers with TLS, ``http://`` and
``https://`` their web services; more hosts follow after commas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from geminga.errors import InvalidServiceUrl

# The port where a URL names none.
DEFAULT_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}
WEB_DEFAULT_PORTS = {"http": 80, "https": 443}
TLS_SCHEMES = frozenset(("pulsar+ssl", "https"))


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker, or a proxy in front of it, accepts connections."""

    host: str
    port: int
    is_tls: bool = False

    def __str__(self) -> str:
        """``host:port``, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Route:
    """How to reach a broker."""

    # Where to connect: the broker itself, or a proxy in front of it.
    address: BrokerAddress
    # Behind a proxy: ``host:port`` of the broker, which CONNECT tells the proxy.
    proxy_target: str | None = None

    def to(self, broker_url: str) -> Route:
        """The route to a broker that the one at this route named: through the same proxy, if any.

        Raises ``InvalidServiceUrl``.
        """
        (address, *_) = parse_service_url(broker_url)
        if self.proxy_target is None:
            return Route(address)
        return Route(self.address, proxy_target=str(address))


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """Where a client begins."""

    addresses: tuple[BrokerAddress, ...]
    # Are they those of web services, and not of brokers?
    is_web: bool

    @classmethod
    def parse(cls, url: str) -> ServiceUrl:
        """Read ``scheme://host[:port][,host[:port]...]``. Raises ``InvalidServiceUrl``."""
        is_web = url.partition("://")[0] in WEB_DEFAULT_PORTS
        return cls(_parse_addresses(url, DEFAULT_PORTS | WEB_DEFAULT_PORTS), is_web)

    @property
    def is_tls(self) -> bool:
        """Is everything secured by TLS? A URL has one scheme for all addresses."""
        return self.addresses[0].is_tls

    @property
    def web_urls(self) -> tuple[str, ...]:
        """``http://host:port`` of each address, or ``https://host:port``."""
        scheme = "https" if self.is_tls else "http"
        return tuple(f"{scheme}://{address}" for address in self.addresses)


def parse_service_url(url: str) -> tuple[BrokerAddress, ...]:
    """The addresses in ``pulsar://host[:port][,host[:port]...]``, at least one.

    Raises ``InvalidServiceUrl``.
    """
    return _parse_addresses(url, DEFAULT_PORTS)


def _parse_addresses(url: str, ports: Mapping[str, int]) -> tuple[BrokerAddress, ...]:
    scheme, separator, hosts = url.partition("://")
    if not separator or scheme not in ports:
        known = ", ".join(f"{each}://" for each in ports)
        raise InvalidServiceUrl(url, f"it begins with none of {known}")
    addresses: list[BrokerAddress] = []
    for host in hosts.rstrip("/").split(","):
        try:
            split = urlsplit(f"//{host}")
            port = split.port
        except ValueError as error:  # of a port that is no number, or an IPv6 address left open
            raise InvalidServiceUrl(url, str(error)) from error
        # What is not an address would be dropped in silence: a password in the URL, for example,
        # does not log in.
        if not split.hostname or split.path or split.username is not None or split.query:
            raise InvalidServiceUrl(url, f"{host!r} is not host:port")
        port = ports[scheme] if port is None else port
        addresses.append(BrokerAddress(split.hostname, port, scheme in TLS_SCHEMES))
    return tuple(addresses)
