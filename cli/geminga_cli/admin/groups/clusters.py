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

# Option, member of the JSON, what it is.
TEXTS = (
    ("--url", "serviceUrl", "where its brokers serve REST: http://HOST:PORT"),
    ("--url-secure", "serviceUrlTls", "where they do with TLS: https://HOST:PORT"),
    ("--broker-url", "brokerServiceUrl", "where they serve clients: pulsar://HOST:PORT"),
    ("--broker-url-secure", "brokerServiceUrlTls", "with TLS: pulsar+ssl://HOST:PORT"),
    ("--proxy-url", "proxyServiceUrl", "the proxy through which brokers reach it"),
    ("--proxy-protocol", "proxyProtocol", "how the proxy is told where to go: SNI"),
    ("--auth-plugin", "authenticationPlugin", "how brokers show it who they are"),
    ("--auth-parameters", "authenticationParameters", "what that method needs"),
    ("--listener-name", "listenerName", "which of its brokers' listeners is used"),
    ("--tls-trust-certs-filepath", "brokerClientTrustCertsFilePath", "which authorities to trust"),
    ("--tls-key-filepath", "brokerClientKeyFilePath", "the brokers' own key"),
    ("--tls-certs-filepath", "brokerClientCertificateFilePath", "the brokers' own certificate"),
)
FLAGS = (
    ("--tls-enable", "brokerClientTlsEnabled", "brokers reach it with TLS"),
    ("--tls-allow-insecure", "tlsAllowInsecureConnection", "whatever certificate it has"),
)


def _attribute(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def _data() -> Sequence[Argument]:
    texts = [option(name, help=words, metavar="TEXT") for name, _, words in TEXTS]
    return (CLUSTER, *texts, *(switch(name, help=words) for name, _, words in FLAGS))


def _cluster_data(given: Given) -> dict[str, object]:
    texts = {member: getattr(given, _attribute(name)) for name, member, _ in TEXTS}
    flags = {member: getattr(given, _attribute(name)) for name, member, _ in FLAGS}
    return compact(texts) | flags


def _list(service: AdminService, given: Given) -> list[str]:
    clusters: list[str] = service.ask("GET", "clusters")
    if not given.current:
        return clusters
    # A broker knows its own cluster's brokers only.
    for cluster in clusters:
        if cluster != "global" and service.ask("GET", f"brokers/{cluster}"):
            return [f"{each} (*)" if each == cluster else each for each in clusters]
    return clusters


def _delete(service: AdminService, given: Given) -> None:
    """With ``--all``, all tenants go first that are in this cluster and in no other."""
    if given.all:
        for tenant in service.ask("GET", "tenants"):
            if service.ask("GET", f"tenants/{tenant}")["allowedClusters"] == [given.cluster]:
                service.ask("DELETE", f"tenants/{tenant}", {"force": True})
    service.ask("DELETE", path("clusters/{cluster}", given))


OPERATIONS = (
    Operation(
        "list",
        "list all clusters",
        (switch("--current", "-c", help="mark this one's with (*)"),),
        _list,
    ),
    Operation("get", "show where a cluster is reached", (CLUSTER,), gets("clusters/{cluster}")),
    Operation(
        "create", "register a cluster", _data(), sends("PUT", "clusters/{cluster}", _cluster_data)
    ),
    Operation(
        "update",
        "change where a cluster is reached",
        _data(),
        sends("POST", "clusters/{cluster}", _cluster_data),
    ),
    Operation(
        "delete",
        "forget a cluster",
        (CLUSTER, switch("--all", "-a", help="with all tenants that are in no other cluster")),
        _delete,
    ),
)
