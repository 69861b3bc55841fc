"""``/admin/v2/tenants``: the tenants that share the cluster."""

from __future__ import annotations

from contextlib import suppress

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.namespace_deletion import delete_with_topics
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.services import Services
from geminga_cluster.errors import NamespaceNotFound, TenantNotFound
from geminga_protocol.pulsar.topics.topic_names import is_entity_name
from geminga_protocol.records.cluster.tenants import TenantInfo
from geminga_protocol.records.encodings.json_records import of_document
from geminga_server.authorization import Action
from geminga_server.rest.access import on_cluster, on_tenant
from geminga_server.rest.answers import Json, json_record, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import flag, object_body, path_value

router = APIRouter(prefix="/admin/v2/tenants")


@router.get("", dependencies=[on_cluster(Action.READ)])
async def list_tenants(services: ServicesArg) -> Response:
    """The names of all tenants."""
    return Json(await services.tenants.names())


@router.get("/{tenant}", dependencies=[on_tenant(Action.READ)])
async def get_tenant(request: Request, services: ServicesArg) -> Response:
    """A tenant's administrators and clusters."""
    return json_record(await services.tenants.get(path_value(request, "tenant")))


@router.put("/{tenant}", dependencies=[on_tenant(Action.ADMINISTER)])
async def create_tenant(request: Request, services: ServicesArg) -> Response:
    """Create a tenant."""
    body = await object_body(request)
    name = path_value(request, "tenant")
    if not is_entity_name(name):
        raise RestError(412, "Tenant name is not valid")
    # Checked before the record is written; a cluster that is deleted between the two is not
    # noticed.
    await services.tenants.create(name, await _tenant(services, body))
    return no_content()


@router.post("/{tenant}", dependencies=[on_tenant(Action.ADMINISTER)])
async def update_tenant(request: Request, services: ServicesArg) -> Response:
    """Change a tenant's administrators and clusters."""
    # The record as a whole replaces the one before.
    record = await _tenant(services, await object_body(request))
    name = path_value(request, "tenant")
    try:
        await services.tenants.update(name, record)
    except TenantNotFound:
        raise RestError(404, f"Tenant {name} not found") from None
    return no_content()


@router.delete("/{tenant}", dependencies=[on_tenant(Action.ADMINISTER)])
async def delete_tenant(request: Request, services: ServicesArg) -> Response:
    """Delete a tenant without namespaces; ``force`` deletes these and their topics, too, where the
    broker's settings allow it."""
    tenant = path_value(request, "tenant")
    is_forced = flag(request, "force")
    if is_forced and not services.config.force_deletes_tenants:
        raise RestError(405, "Broker doesn't allow forced deletion of tenants")
    try:
        if is_forced:
            # One after the other; where one fails, the tenant keeps it and those after it. The list
            # is read once: a namespace that is created meanwhile keeps the tenant.
            for namespace in await services.namespaces.names(tenant):
                with suppress(NamespaceNotFound):  # another request has deleted it meanwhile
                    await delete_with_topics(request, services, namespace)
        await services.tenants.delete(tenant)
    except TenantNotFound:
        raise RestError(404, "Tenant doesn't exist") from None
    return no_content()


async def _tenant(services: Services, body: dict[str, object] | None) -> TenantInfo:
    """The record in the body, checked. Raises ``RestError`` 412."""
    # The checks and their texts are upstream's.
    if body is None:
        raise RestError(412, "TenantInfo is null")
    if body.get("allowedClusters") is None:
        raise RestError(412, "Clusters cannot be null")
    record = of_document(TenantInfo, body)
    if not any(cluster.strip() for cluster in record.allowed_clusters):
        raise RestError(412, "Clusters cannot be empty or blank")
    known = await services.clusters.names()
    # A tenant in a cluster without a record could have no namespaces there.
    if not set(record.allowed_clusters) <= set(known):
        raise RestError(412, "Clusters do not exist")
    if any(role != role.strip() for role in record.admin_roles):
        raise RestError(412, "AdminRoles contains whitespace in the beginning or end.")
    return record
