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


def parse_service_url(
    url: str, ports: Mapping[str, int] = DEFAULT_PORTS
) -> tuple[BrokerAddress, ...]:
    """The addresses in ``scheme://host[:port][,host[:port]...]``, at least one. All of them have
    the one scheme, and with it TLS or none.

    ``ports`` has the schemes that are allowed, with the port of each where the URL names none. By
    default these are brokers' own; a web service has no place where a broker is named. Raises
    ``InvalidServiceUrl``.
    """
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
        # ``or`` would take the port 0 for none.
        port = ports[scheme] if port is None else port
        addresses.append(BrokerAddress(split.hostname, port, scheme in TLS_SCHEMES))
    return tuple(addresses)
