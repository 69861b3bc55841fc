"""``/admin/v2/namespaces/…/replication``, to which clusters the topics of a namespace go, and
``…/allowedClusters``, to which its topics may go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.facade import Services
from geminga_broker.admin.parameters import ServicesArg
from geminga_cluster.errors import NamespaceNotFound
from geminga_protocol.pulsar.topic_names import NamespaceName
from geminga_protocol.records.clusters import GLOBAL_CLUSTER
from geminga_protocol.records.namespaces import Policies
from geminga_server.authorization import Action
from geminga_server.rest.access import on_namespace
from geminga_server.rest.answers import Json, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import NamespaceArg, json_body

router = APIRouter(prefix="/admin/v2/namespaces/{tenant}/{namespace}")


@router.get("/replication", dependencies=[on_namespace(Action.READ)])
async def get_replication_clusters(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """The clusters of a namespace."""
    try:
        policies = await services.namespaces.policies(namespace)
    except NamespaceNotFound:
        raise RestError(404, "Namespace does not exist") from None
    return Json(list(policies.replication_clusters))


@router.post("/replication", dependencies=[on_namespace(Action.ADMINISTER)])
async def set_replication_clusters(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Replicate the topics of a namespace between these clusters from now on, and to no other."""
    clusters = sorted(set(await clusters_body(request)))
    await check_clusters(services, namespace, clusters)
    try:
        await services.namespaces.update(
            namespace, lambda policies: replace(policies, replication_clusters=tuple(clusters))
        )
    except NamespaceNotFound:
        raise RestError(404, "Namespace does not exist") from None
    return no_content()


@router.get("/allowedClusters", dependencies=[on_namespace(Action.READ)])
async def get_allowed_clusters(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """The clusters that a namespace may be in; none, where its tenant's are."""
    try:
        policies = await services.namespaces.policies(namespace)
    except NamespaceNotFound:
        raise RestError(404, "Namespace does not exist") from None
    return Json(list(policies.allowed_clusters))


@router.post("/allowedClusters", dependencies=[on_namespace(Action.ADMINISTER)])
async def set_allowed_clusters(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Let a namespace be in these clusters alone: those that it is replicated between among them,
    and others, to which topics of it may go by themselves."""
    clusters = sorted(set(await clusters_body(request)))
    await check_tenant_allows(services, namespace.tenant, clusters)

    def allow(policies: Policies) -> Policies:
        for cluster in policies.replication_clusters:
            if cluster not in clusters:
                raise RestError(
                    400,
                    f"Allowed clusters do not contain the replication cluster {cluster}. Please "
                    "remove the replication cluster if the cluster is not allowed for this "
                    "namespace",
                )
        return replace(policies, allowed_clusters=tuple(clusters))

    try:
        # Looked at before the others, as upstream does, and again when it is stored.
        allow(await services.namespaces.policies(namespace))
        await check_known(services, clusters)
        await services.namespaces.update(namespace, allow)
    except NamespaceNotFound:
        raise RestError(404, "Namespace does not exist") from None
    return no_content()


async def clusters_body(request: Request) -> list[str]:
    """The clusters that the body lists. Raises ``RestError`` 400 where it is no such list."""
    body = await json_body(request)
    if not isinstance(body, list) or not all(isinstance(each, str) for each in body):
        raise RestError(400, "the body has to be a list of clusters")
    return body


async def check_clusters(
    services: Services, namespace: NamespaceName, clusters: Sequence[str]
) -> None:
    """Raise ``RestError`` unless a namespace may be replicated between these clusters."""
    if not clusters:
        raise RestError(412, "ClusterIds should not be null or empty")
    if GLOBAL_CLUSTER in clusters:
        raise RestError(412, "Cannot specify global in the list of replication clusters")
    await check_known(services, clusters)
    try:
        allowed = (await services.namespaces.policies(namespace)).allowed_clusters
    except NamespaceNotFound:
        raise RestError(404, "Namespace does not exist") from None
    if not allowed:
        await check_tenant_allows(services, namespace.tenant, clusters)
        return
    for cluster in clusters:
        if cluster not in allowed:
            raise RestError(
                403,
                f"Cluster [{cluster}] is not in the list of allowed clusters list for namespace "
                f"[{namespace}]",
            )


async def check_known(services: Services, clusters: Sequence[str]) -> None:
    """Raise ``RestError`` where a cluster has no record."""
    known = await services.clusters.names()
    for cluster in clusters:
        if cluster not in known:
            raise RestError(403, f"Invalid cluster id: {cluster}")


async def check_tenant_allows(services: Services, tenant: str, clusters: Sequence[str]) -> None:
    """Raise ``RestError`` unless a tenant may be in all of these clusters."""
    allowed = (await services.tenants.get(tenant)).allowed_clusters
    for cluster in clusters:
        if cluster not in allowed:
            raise RestError(
                403,
                f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant "
                f"[{tenant}]",
            )
