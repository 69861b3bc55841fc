"""The settings of a broker, from a file, the environment or options: one class, made of groups.

A group is declared in the room of its subject, and handed whole to what needs it; a setting is
declared there and nowhere else. Settings of the broker as a whole are declared here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Gt

from geminga_broker.admin.config import AdminConfig
from geminga_broker.load_manager.config import LoadManagerConfig
from geminga_broker.managed_ledger.config import CacheConfig, Interceptor
from geminga_broker.ownership.addresses.address import BrokerAddress
from geminga_broker.ownership.addresses.listeners import BindAddress, ListenerConfig
from geminga_broker.ownership.assignment.load_report import LoadReportConfig
from geminga_broker.policies.effective import PolicyConfig
from geminga_broker.replication.config import ReplicationConfig
from geminga_broker.sessions.config import SessionConfig
from geminga_broker.topics.config import TopicsConfig
from geminga_ledger import LedgerConfig
from geminga_server.config import (
    INLINE,
    INTERNAL,
    ConnectionConfig,
    PartConfig,
    Port,
    Upstream,
    zookeeper_hosts,
)
from geminga_server.tls.config import BookieClientTlsConfig, BrokerClientTlsConfig, TlsConfig

# The URL scheme of each of the broker's own ports, by the name of its setting.
SCHEME_OF_PORT = {
    "port": "pulsar",
    "web_port": "http",
    "port_tls": "pulsar+ssl",
    "web_port_tls": "https",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionsConfig:
    """Where functions run."""

    functions_worker_enabled: Annotated[bool, Upstream("functionsWorkerEnabled")] = False
    """Start a functions worker beside the broker, unless the URL of one is set."""
    functions_worker_web_service_url: str = ""
    """Functions workers that run elsewhere, `http://HOST:PORT,HOST:PORT`: requests about functions,
    sources and sinks are forwarded to them."""
    functions_worker_directory: str = "functions-worker"
    """Where the worker beside the broker keeps packages and environments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(PartConfig):
    """The settings of one broker; bytes and seconds as the names say, port 0 takes any free one.

    A ``Broker`` takes a config with the ports it has got: they go into records before it listens.
    """

    cluster: Annotated[str, Upstream("clusterName")] = "standalone"
    """The cluster's name."""
    configuration_store: Annotated[str, Upstream("configurationMetadataStoreUrl")] = ""
    """The ZooKeeper that this cluster shares with others for what concerns all of them (clusters,
    tenants, policies of namespaces, partitioned topics), `zk:HOST:PORT/path`; empty: its own."""
    initialize: bool = False
    """Write the cluster's first records if they are missing, and its URLs in any case: a
    standalone."""
    cluster_service_url: str = ""
    """With `initialize`: where other clusters reach this one, `pulsar://HOST:PORT`, such as its
    proxy; empty: this broker."""
    cluster_web_service_url: str = ""
    """The same of REST, `http://HOST:PORT`."""
    bind_address: Annotated[str, Upstream("bindAddress")] = "127.0.0.1"
    """Where it listens; 0.0.0.0 is everywhere."""
    advertised_address: Annotated[str, Upstream("advertisedAddress")] = ""
    """The host that clients connect to; empty: the bind address."""
    port: Annotated[Port, Upstream("brokerServicePort")] = 6650
    """The port of the Pulsar protocol; 0 takes a free one."""
    web_port: Annotated[Port, Upstream("webServicePort")] = 8080
    """The port of REST and metrics; 0 takes a free one."""
    port_tls: Annotated[Port, Upstream("brokerServicePortTls")] = 6651
    """The port of the Pulsar protocol with TLS, where there is a certificate; 0 takes a free one.
    """
    web_port_tls: Annotated[Port, Upstream("webServicePortTls")] = 8443
    """The port of REST and metrics with TLS, where there is a certificate; 0 takes a free one."""
    tls: TlsConfig = field(default_factory=TlsConfig)
    tls_only: bool = False
    """Leave `port` and `web_port` closed, as Pulsar does where `brokerServicePort` and
    `webServicePort` are empty; this needs a certificate."""
    broker_client_tls: BrokerClientTlsConfig = field(default_factory=BrokerClientTlsConfig)
    bookkeeper_tls: BookieClientTlsConfig = field(default_factory=BookieClientTlsConfig)
    listeners: Annotated[ListenerConfig, INLINE] = field(default_factory=ListenerConfig)
    former_broker_ids: tuple[str, ...] = ()
    """Ids (`host:web port`) this broker had before, when its ports or its address changed: its
    nodes in ZooKeeper are taken over."""
    connections: Annotated[ConnectionConfig, INLINE] = field(default_factory=ConnectionConfig)
    sessions: Annotated[SessionConfig, INLINE] = field(default_factory=SessionConfig)
    cache: Annotated[CacheConfig, INLINE] = field(default_factory=CacheConfig)
    broker_entry_metadata_interceptors: Annotated[
        tuple[Interceptor, ...], Upstream("brokerEntryMetadataInterceptors")
    ] = ()
    """The metadata that is written in front of every entry: the broker's time, a running index."""
    # Timeouts of bookies and ZooKeeper, among others: the simulation makes them short.
    ledgers: Annotated[LedgerConfig, INTERNAL] = field(default_factory=LedgerConfig)
    policies: Annotated[PolicyConfig, INLINE] = field(default_factory=PolicyConfig)
    topics: Annotated[TopicsConfig, INLINE] = field(default_factory=TopicsConfig)
    admin: Annotated[AdminConfig, INLINE] = field(default_factory=AdminConfig)
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    functions: Annotated[FunctionsConfig, INLINE] = field(default_factory=FunctionsConfig)
    load_reports: Annotated[LoadReportConfig, INLINE] = field(default_factory=LoadReportConfig)
    load_manager: Annotated[LoadManagerConfig, INLINE] = field(default_factory=LoadManagerConfig)
    hand_on_budget_s: Annotated[float, Ge(0)] = 2.0
    """How long a broker that is asked to end hands its bundles on to the others, before it closes
    those that are left, which clients then look up. It is killed 5 s after that."""
    exposes_bundle_metrics: Annotated[bool, Upstream("exposeBundlesMetricsInPrometheus")] = False
    """`/metrics` shows each bundle of the broker, too."""
    stats_period_s: Annotated[float, Gt(0), Upstream("statsUpdateFrequencyInSecs")] = 60.0
    """The period over which rates are measured."""

    def __post_init__(self) -> None:
        if self.tls_only and not self.tls.is_on:
            raise ValueError("tls_only wants TLS, for which tls.certificate_file is missing")
        # The broker's own TLS ports are left out without a certificate; those that are listed are
        # an error.
        secured = next((each for each in self.listeners.binds if each.is_tls), None)
        if secured is not None and not self.tls.is_on:
            raise ValueError(
                f"bind_addresses: {secured.scheme}://{secured.host}:{secured.port} wants TLS, for "
                "which tls.certificate_file is missing"
            )

    @property
    def shared_zookeeper(self) -> str:
        """The hosts of the configuration store; empty where it is the cluster's own ZooKeeper."""
        # Setting the cluster's own ZooKeeper is the same as setting none.
        hosts = zookeeper_hosts(self.configuration_store)
        return "" if hosts == self.zookeeper else hosts

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports of its own that it listens on, by the names of their settings."""
        # With TLS both kinds of ports are open, unless it is to be the only one.
        plain = {} if self.tls_only else {"port": self.port, "web_port": self.web_port}
        # Without a certificate the TLS ports stay closed, whatever they are set to.
        secured = {"port_tls": self.port_tls, "web_port_tls": self.web_port_tls}
        return plain | secured if self.tls.is_on else plain

    @property
    def binds(self) -> tuple[BindAddress, ...]:
        """All addresses it listens on: its own ports, then those of its advertised listeners."""
        # "" is the internal listener: who connects to these ports is answered for it.
        own = (
            BindAddress("", SCHEME_OF_PORT[name], self.bind_address, port)
            for name, port in self.ports.items()
        )
        return (*own, *self.listeners.binds)

    @property
    def advertised_host(self) -> str:
        """The host that clients connect to, which is part of the broker's id.

        The bind address comes last: all brokers that bind 0.0.0.0 would have the same id.
        """
        internal_host = self.listeners.advertised.internal_host
        return self.advertised_address or internal_host or self.bind_address

    @property
    def address(self) -> BrokerAddress:
        """The URLs of the broker: of its internal listener, or else of its advertised host."""
        host, ports, listeners = self.advertised_host, self.ports, self.listeners.advertised

        def url(port_name: str) -> str:
            scheme = SCHEME_OF_PORT[port_name]
            own = f"{scheme}://{host}:{ports[port_name]}" if port_name in ports else ""
            # Listeners win: where some are set, clients are to use their URLs only.
            return listeners.url(scheme) or own

        return BrokerAddress(
            # As upstream: the port of HTTPS stands for the broker where it serves no HTTP. Two ids
            # for one broker would be two brokers to the cluster: so the id depends on one port
            # alone.
            broker_id=f"{host}:{ports.get('web_port', self.web_port_tls)}",
            broker_url=url("port"),
            http_url=url("web_port"),
            broker_url_tls=url("port_tls"),
            http_url_tls=url("web_port_tls"),
            listeners=listeners.records,
        )
