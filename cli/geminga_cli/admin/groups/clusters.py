"""``geminga admin clusters``."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_cli.admin.operation import (
    Argument,
    Given,
    Operation,
    gets,
    option,
    path,
    place,
    sends,
    switch,
)
from geminga_cli.admin.service import AdminService
from geminga_cli.admin.values import compact

CLUSTER = place("cluster", "the cluster's name")

# The options that describe a cluster: option, member of the JSON, help. Members of ``ClusterData``
# of Pulsar.
TEXTS = (
    ("--url", "serviceUrl", "the REST of its brokers: http://HOST:PORT"),
    ("--url-secure", "serviceUrlTls", "the same with TLS: https://HOST:PORT"),
    ("--broker-url", "brokerServiceUrl", "its brokers for clients: pulsar://HOST:PORT"),
    ("--broker-url-secure", "brokerServiceUrlTls", "the same with TLS: pulsar+ssl://HOST:PORT"),
    ("--proxy-url", "proxyServiceUrl", "the proxy through which brokers reach it"),
    ("--proxy-protocol", "proxyProtocol", "how the proxy learns the target of a connection: SNI"),
    ("--auth-plugin", "authenticationPlugin", "how brokers authenticate to it"),
    ("--auth-parameters", "authenticationParameters", "the parameters of that method"),
    ("--listener-name", "listenerName", "which of its brokers' listeners to use"),
    ("--tls-trust-certs-filepath", "brokerClientTrustCertsFilePath", "the authorities to trust"),
    ("--tls-key-filepath", "brokerClientKeyFilePath", "the brokers' own key"),
    ("--tls-certs-filepath", "brokerClientCertificateFilePath", "the brokers' own certificate"),
)
FLAGS = (
    ("--tls-enable", "brokerClientTlsEnabled", "brokers connect to it with TLS"),
    ("--tls-allow-insecure", "tlsAllowInsecureConnection", "accept any certificate of it"),
)


def data_arguments() -> Sequence[Argument]:
    """The arguments of ``create`` and ``update``."""
    texts = [option(name, help=words, metavar="TEXT") for name, _, words in TEXTS]
    return (CLUSTER, *texts, *(switch(name, help=words) for name, _, words in FLAGS))


def cluster_data(given: Given) -> dict[str, object]:
    """The cluster as REST takes it, with the texts that were given and all flags."""
    # A text that is not given is left out; a switch that is not given is false.
    return compact(
        {
            member: getattr(given, name.removeprefix("--").replace("-", "_"))
            for name, member, _ in (*TEXTS, *FLAGS)
        }
    )


def list_clusters(service: AdminService, given: Given) -> list[str]:
    """All clusters; with ``--current``, the broker's own is marked."""
    clusters: list[str] = service.ask("GET", "clusters")
    if not given.current:
        return clusters
    # A broker knows only the brokers of its own cluster.
    for cluster in clusters:
        # An empty list for every cluster but its own.
        if cluster != "global" and service.ask("GET", f"brokers/{cluster}"):
            return [f"{each} (*)" if each == cluster else each for each in clusters]
    return clusters


def delete_cluster(service: AdminService, given: Given) -> None:
    """Delete the cluster; with ``--all``, first all tenants that are in no other cluster."""
    if given.all:
        for tenant in service.ask("GET", "tenants"):
            # A tenant of several clusters lives on in the others.
            if service.ask("GET", f"tenants/{tenant}")["allowedClusters"] == [given.cluster]:
                service.ask("DELETE", f"tenants/{tenant}", {"force": True})
    service.ask("DELETE", path("clusters/{cluster}", given))


OPERATIONS = (
    Operation(
        "list",
        "list all clusters",
        (switch("--current", "-c", help="mark the broker's own cluster with (*)"),),
        list_clusters,
    ),
    Operation("get", "show the addresses of a cluster", (CLUSTER,), gets("clusters/{cluster}")),
    Operation(
        "create",
        "register a cluster",
        data_arguments(),
        sends("PUT", "clusters/{cluster}", cluster_data),
    ),
    # The whole record is replaced: an address that is not given is gone afterwards.
    Operation(
        "update",
        "change the addresses of a cluster",
        data_arguments(),
        sends("POST", "clusters/{cluster}", cluster_data),
    ),
    Operation(
        "delete",
        "delete the record of a cluster",
        (CLUSTER, switch("--all", "-a", help="with all tenants that are in no other cluster")),
        delete_cluster,
    ),
)
