"""The settings of a functions worker, with the names of upstream's ``functions_worker.yml``.

The docstring below a setting is its description in documents and in ``--help``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt

from geminga_functions.runtime.config import RuntimeConfig
from geminga_server.config import INLINE, Port, Upstream
from geminga_server.config.part import LogLevel
from geminga_server.tls.config import TlsConfig, context_at_start

if TYPE_CHECKING:  # it takes 20 ms to load, and `--help` needs none of it
    from ssl import SSLContext

    from geminga import Tls


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTlsConfig:
    """How a worker and its instances secure connections to brokers. Files are in PEM form, and read
    for each connection."""

    enabled: Annotated[bool, Upstream("useTls")] = False
    """Use TLS where `pulsar_service_url` begins with `pulsar://` too. URLs that begin with
    `pulsar+ssl://` and `https://` are secured in any case."""
    trust_file: Annotated[str, Upstream("brokerClientTrustCertsFilePath")] = ""
    """The certificates of the authorities that sign those of brokers; empty: the system's."""
    certificate_file: str = ""
    """The certificate of the client, for brokers that require one; empty: none."""
    key_file: str = ""
    """Its key, not encrypted; empty: the key is in the file of the certificate."""
    check_hostname: Annotated[bool, Upstream("tlsEnableHostnameVerification")] = True
    """Accept a broker's certificate only if it is for the host of the broker's address."""

    def __post_init__(self) -> None:
        if self.key_file and not self.certificate_file:
            raise ValueError("broker_tls: key_file is of no use without certificate_file")

    @property
    def client_tls(self) -> Tls:
        """The settings for a client, with absolute paths.

        An instance has a working directory of its own, where relative paths would not be found.
        """
        from geminga import Tls  # noqa: PLC0415 - not for --help

        # An empty setting stays empty: it stands for the default of the client.
        names = (self.trust_file, self.certificate_file, self.key_file)
        trust, certificate, key = (str(Path(each).absolute()) if each else None for each in names)
        return Tls(trust, certificate, key, checks_hostname=self.check_hostname)

    def context(self) -> SSLContext:
        """The settings for a REST call, from the files as they are now.

        Reads files. Raises ``ServerStartError`` if one of them cannot be used.
        """
        return context_at_start("broker_tls", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionsWorkerConfig:
    """The settings of one functions worker; port 0 takes any free one."""

    worker_id: Annotated[str, Upstream("workerId")] = ""
    """The name of the worker, unique in its cluster; empty: made of host name and port."""
    worker_hostname: Annotated[str, Upstream("workerHostname")] = ""
    """The host at which brokers, proxies and other workers reach this one; empty: the bind
    address."""
    bind_address: Annotated[str, Upstream("bindAddress")] = "127.0.0.1"
    """The address that the worker listens on; 0.0.0.0: all addresses."""
    worker_port: Annotated[Port, Upstream("workerPort")] = 6750
    """The port of REST and metrics; 0 takes a free one."""
    tls_enabled: Annotated[bool, Upstream("tlsEnabled")] = False
    """Also serve REST and metrics with TLS, on `worker_port_tls`, with the certificate in `tls`.
    Workers send requests to each other without TLS."""
    worker_port_tls: Annotated[Port, Upstream("workerPortTls")] = 6751
    """The port with TLS; 0 takes a free one."""
    tls: TlsConfig = field(default_factory=TlsConfig)
    pulsar_service_url: Annotated[str, Upstream("pulsarServiceUrl")] = "pulsar://localhost:6650"
    """The brokers, or a proxy: a worker talks to nothing else."""
    pulsar_web_service_url: Annotated[str, Upstream("pulsarWebServiceUrl")] = (
        "http://localhost:8080"
    )
    """Their web services, `http://HOST:PORT,HOST:PORT`: each is used if those before it do not
    answer."""
    broker_tls: BrokerTlsConfig = field(default_factory=BrokerTlsConfig)
    pulsar_functions_cluster: Annotated[str, Upstream("pulsarFunctionsCluster")] = "standalone"
    """The name of the cluster, as functions and metrics see it."""
    pulsar_functions_namespace: Annotated[str, Upstream("pulsarFunctionsNamespace")] = (
        "public/functions"
    )
    """The namespace of the topics of workers. Those that share it are one cluster of workers,
    unless their topics differ."""
    cluster_coordination_topic_name: Annotated[str, Upstream("clusterCoordinationTopicName")] = (
        "coordinate"
    )
    """The topic by which workers elect their leader, and on which they publish heartbeats."""
    function_metadata_topic_name: Annotated[str, Upstream("functionMetadataTopicName")] = "metadata"
    """The topic of functions, sources and sinks."""
    function_assignment_topic_name: Annotated[str, Upstream("functionAssignmentTopicName")] = (
        "assignments"
    )
    """The topic that says which worker runs what."""
    lease_s: Annotated[float, Gt(0.1)] = 3.0
    """How many seconds instances continue to run when their worker reaches no broker. Then they
    end, and other workers start them: this is about how long a failover takes."""
    rebalances: bool = True
    """Spread instances evenly again when a worker joins, or a drained one comes back."""
    topic_compaction_s: Annotated[float, Gt(0), Upstream("topicCompactionFrequencySec")] = 1800.0
    """How often the leader compacts the topics of functions, assignments and state, in seconds."""
    additional_enabled_functions_url_patterns: Annotated[
        tuple[str, ...], Upstream("additionalEnabledFunctionsUrlPatterns")
    ] = ()
    """Regular expressions for URLs (http, https, file) from which this worker fetches packages of
    functions; each matches a whole URL. Every user who may create functions can make the worker
    send requests to these URLs."""
    additional_enabled_connector_url_patterns: Annotated[
        tuple[str, ...], Upstream("additionalEnabledConnectorUrlPatterns")
    ] = ()
    """The same for packages of sources and sinks."""
    runtime: Annotated[RuntimeConfig, INLINE] = field(default_factory=RuntimeConfig)
    stop_with_input: bool = False
    """Stop when standard input, a pipe or a socket, is closed: the worker then ends together with
    the broker that has started it, however that ends."""
    log_level: LogLevel = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""
    log_json: bool = False
    """Log one JSON object per line."""

    def __post_init__(self) -> None:
        if self.tls_enabled and not self.tls.is_on:
            raise ValueError("tls_enabled: a certificate is needed; give tls.certificate_file")

    @property
    def service_url(self) -> str:
        """The URL of the brokers, with the scheme for TLS if ``broker_tls`` is enabled."""
        # ``useTls`` is a setting of its own upstream: the URL in the file may say ``pulsar://`` all
        # the same.
        scheme, _, rest = self.pulsar_service_url.partition("://")
        is_secured = self.broker_tls.enabled and scheme == "pulsar"
        return f"pulsar+ssl://{rest}" if is_secured else self.pulsar_service_url

    def topic(self, name: str) -> str:
        """The full name of a topic of the workers."""
        return f"persistent://{self.pulsar_functions_namespace}/{name}"
