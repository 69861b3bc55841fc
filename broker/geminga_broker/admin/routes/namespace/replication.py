"""``/admin/v2/namespaces/…/replication``, the clusters that a namespace is replicated between, and
``…/allowedClusters``, those that its topics may be replicated to."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.policy_routes import change_policies, policies_of
from geminga_broker.admin.services import Services
from geminga_broker.policies.levels import nearest
from geminga_broker.replication.errors import PartitionsDiffer, RemoteRefused, ReplicationError
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.clusters import GLOBAL_CLUSTER
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_server.authorization import Action
from geminga_server.rest.access import on_namespace
from geminga_server.rest.answers import Json, empty
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import NamespaceArg, json_body

router = APIRouter(prefix="/admin/v2/namespaces/{tenant}/{namespace}")


@router.get("/replication", dependencies=[on_namespace(Action.READ)])
async def get_replication_clusters(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """The clusters of a namespace."""
    return Json(list((await policies_of(services, namespace)).replication_clusters))


@router.post("/replication", dependencies=[on_namespace(Action.ADMINISTER)])
async def set_replication_clusters(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Replicate the topics of a namespace between these clusters from now on, and to no other."""
    # Sorted, each once: as upstream's set is written.
    clusters = tuple(sorted(set(await clusters_body(request))))
    # Before the record is changed. A cluster whose record goes meanwhile is found by its
    # replicator, which reports it.
    await check_clusters(services, namespace, clusters)
    await change_policies(
        services, namespace, lambda policies: replace(policies, replication_clusters=clusters)
    )
    return empty()


@router.get("/allowedClusters", dependencies=[on_namespace(Action.READ)])
async def get_allowed_clusters(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """The clusters that a namespace may be in; an empty list stands for those of its tenant."""
    return Json(list((await policies_of(services, namespace)).allowed_clusters))


@router.post("/allowedClusters", dependencies=[on_namespace(Action.ADMINISTER)])
async def set_allowed_clusters(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Set the clusters that a namespace may be in. Those that it is replicated between have to be
    among them; single topics may be replicated to the others."""
    clusters = tuple(sorted(set(await clusters_body(request))))
    await check_tenant_allows(services, namespace.tenant, clusters)

    def allow(policies: Policies) -> Policies:
        # Called with the record as it is at each attempt.
        for cluster in policies.replication_clusters:
            if cluster not in clusters:
                raise RestError(
                    400,
                    f"Allowed clusters do not contain the replication cluster {cluster}. Please "
                    "remove the replication cluster if the cluster is not allowed for this "
                    "namespace",
                )
        return replace(policies, allowed_clusters=clusters)

    # Upstream checks this before the clusters, so that it decides which text a client gets. It is
    # checked again below, with the record that is changed.
    allow(await policies_of(services, namespace))
    await check_known(services, clusters)
    await change_policies(services, namespace, allow)
    return empty()


async def clusters_body(request: Request) -> list[str]:
    """The clusters that the body lists. Raises ``RestError`` 400 where it is not such a list."""
    body = await json_body(request)
    # Names are not checked here: the callers compare them with clusters that exist.
    if not isinstance(body, list) or not all(isinstance(each, str) for each in body):
        raise RestError(400, "the body has to be a list of clusters")
    return body


async def check_clusters(
    services: Services, namespace: NamespaceName, clusters: Sequence[str]
) -> None:
    """Raise ``RestError`` unless a namespace may be replicated between these clusters."""
    if not clusters:
        raise RestError(412, "ClusterIds should not be null or empty")
    # A name that upstream reserves for the configuration store.
    if GLOBAL_CLUSTER in clusters:
        raise RestError(412, "Cannot specify global in the list of replication clusters")
    await check_known(services, clusters)
    # The namespace's own list replaces that of its tenant.
    if allowed := (await policies_of(services, namespace)).allowed_clusters:
        check_allowed(clusters, allowed, f"namespace [{namespace}]")
    else:
        await check_tenant_allows(services, namespace.tenant, clusters)


async def check_known(services: Services, clusters: Sequence[str]) -> None:
    """Raise ``RestError`` where a cluster has no record."""
    # Its brokers could not be reached.
    known = await services.clusters.names()
    for cluster in clusters:
        if cluster not in known:
            raise RestError(403, f"Invalid cluster id: {cluster}")


async def check_tenant_allows(services: Services, tenant: str, clusters: Sequence[str]) -> None:
    """Raise ``RestError`` unless a tenant may be in all of these clusters."""
    check_allowed(
        clusters, (await services.tenants.get(tenant)).allowed_clusters, f"tenant [{tenant}]"
    )


@contextmanager
def refusals_of_remotes() -> Generator[None]:
    """Answer errors of requests to other clusters with upstream's statuses."""
    try:
        yield
    # The words of this text are upstream's.
    except PartitionsDiffer as error:
        raise RestError(
            412,
            f"There is an exists topic {error.topic} with different partitions {error.there} on "
            f"the remote cluster {error.remote}, you want to create it with partitions "
            f"{error.here}",
        ) from error
    except RemoteRefused as error:
        raise RestError(error.status, str(error)) from error
    except ReplicationError as error:
        raise RestError(500, str(error)) from error


async def clusters_of(services: Services, topic: TopicName) -> Sequence[str]:
    """The clusters that ``topic`` is in, by its own policies or those of its namespace."""
    own = await services.topic_policies.local(topic)
    if own.replication_clusters is None:
        # The policies for all clusters count where those for this one do not set it.
        own = services.topic_policies.known(topic)
    namespace = await services.namespaces.policies(topic.namespace)
    # The nearest level that sets it counts as a whole: lists are not joined.
    return nearest(own.replication_clusters, namespace.replication_clusters, ())


def other_clusters(services: Services, clusters: Iterable[str]) -> list[str]:
    """Those of ``clusters`` other than this one."""
    return [each for each in clusters if each != services.cluster]


def check_allowed(clusters: Sequence[str], allowed: Sequence[str], whose: str) -> None:
    """Raise ``RestError`` for a cluster that is not ``allowed`` by ``whose`` policies."""
    for cluster in clusters:
        if cluster not in allowed:
            raise RestError(
                403, f"Cluster [{cluster}] is not in the list of allowed clusters list for {whose}"
            )
