"""Where brokers are: ``pulsar://host:port``, several of them in one URL, or behind a proxy;
``pulsar+ssl://`` with TLS."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from geminga.errors import InvalidServiceUrl

# The port where a URL names none.
DEFAULT_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}
TLS_SCHEMES = frozenset(("pulsar+ssl",))


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
    """How to reach a broker: where to connect, and behind a proxy which broker is meant."""

    address: BrokerAddress
    proxy_target: str | None = None

    def to(self, broker_url: str) -> Route:
        """How to reach a broker that the one at this route named: through the same proxy, if any.

        Raises ``InvalidServiceUrl``.
        """
        (address, *_) = parse_service_url(broker_url)
        if self.proxy_target is None:
            return Route(address)
        return Route(self.address, proxy_target=str(address))


def parse_service_url(url: str) -> tuple[BrokerAddress, ...]:
    """The addresses in ``pulsar://host[:port][,host[:port]...]``, at least one.

    Raises ``InvalidServiceUrl``.
    """
    scheme, separator, hosts = url.partition("://")
    if not separator or scheme not in DEFAULT_PORTS:
        raise InvalidServiceUrl(url, f"it begins with none of {', '.join(DEFAULT_PORTS)} and ://")
    return tuple(_parse_address(url, scheme, host) for host in hosts.rstrip("/").split(","))


def _parse_address(url: str, scheme: str, address: str) -> BrokerAddress:
    try:
        split = urlsplit(f"//{address}")
        port = split.port
    except ValueError as error:
        raise InvalidServiceUrl(url, str(error)) from error
    if not split.hostname or split.path or split.username is not None or split.query:
        raise InvalidServiceUrl(url, f"{address!r} is not host:port")
    port = DEFAULT_PORTS[scheme] if port is None else port
    return BrokerAddress(split.hostname, port, is_tls=scheme in TLS_SCHEMES)
