"""The settings of a proxy, from a file, the environment or options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, Le

from geminga_server.config import INLINE, INTERNAL, ConnectionConfig, PartConfig, Port, Upstream
from geminga_server.config.service_urls import urls_in
from geminga_server.tls.config import TlsConfig, client_context

if TYPE_CHECKING:  # it takes 20 ms to load, and `--help` needs none of it
    from ssl import SSLContext


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundConfig(ConnectionConfig):
    """How many clients a proxy takes."""

    connections_max: Annotated[int, Ge(0), Upstream("maxConcurrentInboundConnections")] = 0
    """How many clients may be connected; 0: as many as the limit on open files (`ulimit -n`) leaves
    room for, which is the most in any case. A client that is joined to a broker takes two files."""
    connections_per_address_max: Annotated[
        int, Ge(0), Upstream("maxConcurrentInboundConnectionsPerIp")
    ] = 0
    """How many connections may come from one address; 0: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """To which brokers clients are connected; names as upstream's."""

    broker_proxy_allowed_host_names: Annotated[
        tuple[str, ...], Upstream("brokerProxyAllowedHostNames")
    ] = ("*",)
    """Hosts that clients may be connected to; `*` stands for any characters."""
    broker_proxy_allowed_target_ports: Annotated[
        tuple[int, ...], Upstream("brokerProxyAllowedTargetPorts")
    ] = ()
    """Ports that clients may be connected to; empty: those of the living brokers in ZooKeeper, or
    where brokers are given as URLs, the ports in them. With ZooKeeper, the host and port must be a
    living broker's in any case."""
    broker_proxy_connect_timeout_s: Annotated[
        float, Gt(0), Upstream("brokerProxyConnectTimeoutMs", 0.001)
    ] = 10.0
    """How long a broker may take to accept a connection and answer its CONNECT."""
    broker_proxy_read_timeout_s: Annotated[
        float, Gt(0), Upstream("brokerProxyReadTimeoutMs", 0.001)
    ] = 75.0
    """How long a broker may send nothing before its connection counts as dead; brokers ping their
    clients every half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """How REST requests are forwarded."""

    concurrent_http_requests_max: Annotated[int, Ge(1), Upstream("maxConcurrentHttpRequests")] = (
        1_024
    )
    """How many requests are forwarded at once; more are refused."""
    http_proxy_timeout_s: Annotated[float, Gt(0), Upstream("httpProxyTimeout")] = 300.0
    """How long nothing may come from, or go to, a broker that took a request."""
    http_input_replay_bytes_max: Annotated[int, Ge(0), Upstream("httpInputMaxReplayBufferSize")] = (
        5 * 1024 * 1024
    )
    """How much of a request's body is kept, to be sent again where a broker redirects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTlsConfig:
    """How a proxy secures its connections to brokers and functions workers. Files are in PEM form,
    and read for each connection."""

    enabled: Annotated[bool, Upstream("tlsEnabledWithBroker")] = False
    """Connect with TLS: to the TLS addresses of the brokers in ZooKeeper, or to those in the
    settings that end in `_url_tls`."""
    trust_file: Annotated[str, Upstream("brokerClientTrustCertsFilePath")] = ""
    """The certificates of the authorities that sign those of brokers; empty: the system's."""
    certificate_file: Annotated[str, Upstream("brokerClientCertificateFilePath")] = ""
    """The certificate that is presented to brokers; empty: none."""
    key_file: Annotated[str, Upstream("brokerClientKeyFilePath")] = ""
    """Its key, not encrypted; empty: it stands in the file of the certificate."""
    check_hostname: Annotated[bool, Upstream("tlsHostnameVerificationEnabled")] = True
    """Take a broker's certificate only where it is for the host that the broker is connected at."""

    def context(self) -> SSLContext:
        """What a connection is made with, from the files as they are now.

        Reads files. Raises ``OSError`` where one cannot be used.
        """
        try:
            return client_context(self)
        except (OSError, ValueError) as error:
            raise OSError(f"the files of broker_tls cannot be used: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig(PartConfig):
    """The settings of one proxy; port 0 takes any free one."""

    broker_service_url: Annotated[str, Upstream("brokerServiceURL")] = ""
    """Brokers, or a balancer before them, `pulsar://HOST:PORT,HOST:PORT`. The proxy then asks them,
    and uses no ZooKeeper."""
    broker_web_service_url: Annotated[str, Upstream("brokerWebServiceURL")] = ""
    """Their web services, `http://HOST:PORT,HOST:PORT`; needed for REST where no ZooKeeper is
    used."""
    function_worker_web_service_url: Annotated[str, Upstream("functionWorkerWebServiceURL")] = ""
    """Where REST of functions, sources and sinks (`/admin/v3/`) is forwarded to,
    `http://HOST:PORT,HOST:PORT`; empty: to brokers."""
    broker_service_url_tls: Annotated[str, Upstream("brokerServiceURLTLS")] = ""
    """As `broker_service_url`, where `broker_tls.enabled`: `pulsar+ssl://HOST:PORT,HOST:PORT`."""
    broker_web_service_url_tls: Annotated[str, Upstream("brokerWebServiceURLTLS")] = ""
    """As `broker_web_service_url`, where `broker_tls.enabled`: `https://HOST:PORT,HOST:PORT`."""
    function_worker_web_service_url_tls: Annotated[
        str, Upstream("functionWorkerWebServiceURLTLS")
    ] = ""
    """As `function_worker_web_service_url`, where `broker_tls.enabled`."""
    broker_tls: BrokerTlsConfig = field(default_factory=BrokerTlsConfig)
    bind_address: Annotated[str, Upstream("bindAddress")] = "127.0.0.1"
    """Where it listens; 0.0.0.0 is everywhere."""
    advertised_address: Annotated[str, Upstream("advertisedAddress")] = ""
    """The address of the proxy in its log and for a supervisor; empty: the bind address."""
    port: Annotated[Port, Upstream("servicePort")] = 6650
    """The port of the Pulsar protocol; 0 takes a free one."""
    web_port: Annotated[Port, Upstream("webServicePort")] = 8080
    """The port of REST and metrics; 0 takes a free one."""
    port_tls: Annotated[Port, Upstream("servicePortTls")] = 6651
    """The port of the Pulsar protocol with TLS, where there is a certificate; 0 takes a free one.
    """
    web_port_tls: Annotated[Port, Upstream("webServicePortTls")] = 8443
    """The port of REST and metrics with TLS, where there is a certificate; 0 takes a free one."""
    tls: TlsConfig = field(default_factory=TlsConfig)
    workers: Annotated[int, Ge(1), Le(64)] = 1
    """How many processes share the ports of the Pulsar protocol; each uses one core at most. Where
    there are several, each takes its part of `connections_max`, and `connections_per_address_max`
    holds for each of them; one more process starts them, and serves REST and metrics."""
    connections: Annotated[InboundConfig, INLINE] = field(default_factory=InboundConfig)
    targets: Annotated[TargetConfig, INLINE] = field(default_factory=TargetConfig)
    web: Annotated[WebConfig, INLINE] = field(default_factory=WebConfig)
    ha_proxy_protocol_enabled: Annotated[bool, Upstream("haProxyProtocolEnabled")] = False
    """A connection may begin with a header of the PROXY protocol, by which a balancer (HAProxy,
    NGINX) gives its client's address. The header is believed: only for proxies whose clients all
    come through such balancers."""
    keepalive_s: Annotated[float, Gt(0), Upstream("keepAliveIntervalSeconds")] = 30.0
    """How often the proxy pings a silent client that asks for topics; after two intervals without a
    sign of life it cuts the client off. Also how long a client may take to send CONNECT. Brokers
    ping the clients that are joined to them."""
    concurrent_lookup_requests_max: Annotated[
        int, Ge(1), Upstream("maxConcurrentLookupRequests")
    ] = 50_000
    """How many requests of clients may wait for brokers' answers; more are refused."""
    # As patient as clients are with brokers.
    operation_timeout_s: Annotated[float, INTERNAL] = 30.0
    # As upstream's proxy; brokers that know each other redirect once or twice.
    lookup_redirects_max: Annotated[int, INTERNAL] = 10

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports that it listens on, by the names of their settings."""
        # Only those that are opened: a port that is not used may be taken by another program. Also
        # checked for being distinct, by their names, before the proxy starts.
        ports = {"port": self.port, "web_port": self.web_port}
        secured = {"port_tls": self.port_tls, "web_port_tls": self.web_port_tls}
        return ports | secured if self.tls.is_on else ports

    @property
    def service_urls(self) -> tuple[str, ...]:
        """The brokers that are asked, each as ``SCHEME://HOST:PORT``; none: those in ZooKeeper."""
        is_tls = self.broker_tls.enabled
        return urls_in(self.broker_service_url_tls if is_tls else self.broker_service_url)

    @property
    def web_urls(self) -> tuple[str, ...]:
        """The brokers' web services, where the brokers are not those in ZooKeeper."""
        is_tls = self.broker_tls.enabled
        return urls_in(self.broker_web_service_url_tls if is_tls else self.broker_web_service_url)

    @property
    def worker_web_urls(self) -> tuple[str, ...]:
        """The web services of functions workers; none: brokers are asked."""
        plain, secured = (
            self.function_worker_web_service_url,
            self.function_worker_web_service_url_tls,
        )
        # With TLS the plain URLs are not used at all, even where no other is set: a request must
        # not leave in the clear.
        return urls_in(secured if self.broker_tls.enabled else plain)
