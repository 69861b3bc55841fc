"""Clusters that replicate topics to each other; each is a standalone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

TENANT = "my-tenant"
NAMESPACE = f"{TENANT}/my-namespace"
REPLICATION = f"/admin/v2/namespaces/{NAMESPACE}/replication"
DEDUPLICATE = True

Clusters = Mapping[str, StandaloneProcess]


def introduce(clusters: Clusters) -> None:
    """Register each cluster at each other, and create tenant and namespace in all."""
    for name in clusters:
        assert done(clusters[name], "GET", "/admin/v2/clusters") == sorted(clusters)
        tenant = {"adminRoles": ["my-admin-role"], "allowedClusters": list(clusters)}
        done(clusters[name], "PUT", f"/admin/v2/tenants/{TENANT}", tenant)
        done(clusters[name], "PUT", f"/admin/v2/namespaces/{NAMESPACE}", {})
        done(clusters[name], "POST", f"/admin/v2/namespaces/{NAMESPACE}/deduplication", DEDUPLICATE)


def addresses(cluster: StandaloneProcess) -> dict[str, str]:
    """The record that other clusters have of this one."""
    return {"serviceUrl": cluster.web_service_url, "brokerServiceUrl": cluster.service_url}


def replicate(clusters: Clusters, between: Iterable[str]) -> None:
    """Put the namespace into these clusters, in each of them."""
    for name in between:
        done(clusters[name], "POST", REPLICATION, list(between))


def done(cluster: StandaloneProcess, method: str, path: str, body: object = None) -> Any:
    """The answer to a request that succeeds."""
    status, answer = rest(cluster.web_service_url, method, path, body)
    assert status in (200, 204), (method, path, status, answer)
    return answer


def cursors(cluster: StandaloneProcess, topic: str) -> set[str]:
    """The clusters for which the topic has a replicator's cursor."""
    path = f"/admin/v2/persistent/{NAMESPACE}/{quote(topic)}/internalStats"
    found = done(cluster, "GET", path)["cursors"]
    return {name.removeprefix("pulsar.repl.") for name in found if name.startswith("pulsar.repl.")}


def stats_of(cluster: StandaloneProcess, topic: str) -> Any:
    """The stats of a topic."""
    return done(cluster, "GET", f"/admin/v2/persistent/{NAMESPACE}/{quote(topic)}/stats")


def backlogs(cluster: StandaloneProcess, topic: str) -> dict[str, int]:
    """How many entries each replicator still has to send, by cluster."""
    found = stats_of(cluster, topic)["replication"]
    return {name: stats["replicationBacklog"] for name, stats in found.items()}


def await_replicated(clusters: Clusters, topic: str) -> None:
    """Return when no replicator has anything left to send."""
    for cluster in clusters.values():
        eventually(lambda: sum(backlogs(cluster, topic).values()), (0).__eq__)  # noqa: B023
