"""The registry of clusters: the addresses of each, by which replicators find the others.

Facts: ``ClusterDataImpl`` of Apache Pulsar.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_protocol.records.encodings.json_records import JsonRecord

CLUSTERS_PATH = "/admin/clusters"
# Not a cluster: stands for all clusters in topic names of Pulsar's first version. The node always
# exists.
GLOBAL_CLUSTER = "global"

_KEY_STORE_TYPE = "JKS"
_SSL_FACTORY = "org.apache.pulsar.common.util.DefaultPulsarSslFactory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterData(JsonRecord):
    """One cluster: its addresses, and how brokers of other clusters authenticate to it."""

    # Addresses of REST, then of the binary protocol; several hosts stand between commas in one URL.
    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    proxy_service_url: str | None = None
    authentication_plugin: str | None = None
    authentication_parameters: str | None = None
    proxy_protocol: str | None = None
    peer_cluster_names: tuple[str, ...] | None = None
    broker_client_tls_enabled: bool = False
    tls_allow_insecure_connection: bool = False
    broker_client_tls_enabled_with_key_store: bool = False
    broker_client_tls_trust_store_type: str | None = _KEY_STORE_TYPE
    broker_client_tls_trust_store: str | None = None
    broker_client_tls_trust_store_password: str | None = None
    broker_client_tls_key_store_type: str | None = _KEY_STORE_TYPE
    broker_client_tls_key_store: str | None = None
    broker_client_tls_key_store_password: str | None = None
    # Files of PEM, used where no key store (above) is.
    broker_client_trust_certs_file_path: str | None = None
    broker_client_key_file_path: str | None = None
    broker_client_certificate_file_path: str | None = None
    broker_client_ssl_factory_plugin: str | None = _SSL_FACTORY
    broker_client_ssl_factory_plugin_params: str | None = None
    listener_name: str | None = None


def cluster_path(name: str) -> str:
    """The node of a cluster."""
    return f"{CLUSTERS_PATH}/{name}"
