"""``/admin/v2/clusters``: the clusters that may replicate to each other."""

from __future__ import annotations

import re

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.parameters import ServicesArg
from geminga_protocol.pulsar.topics.topic_names import is_entity_name
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_protocol.records.encodings.json_records import of_document
from geminga_server.authorization import Action
from geminga_server.rest.access import on_cluster
from geminga_server.rest.answers import Json, empty, json_record, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import object_body, path_value

router = APIRouter(prefix="/admin/v2/clusters")

# Of each URL in a record: its field, its scheme, and its name and port in the text of a refusal.
# Several hosts may be listed.
_URLS = (
    ("service_url", "http", "service url", "8080"),
    ("service_url_tls", "https", "service tls url", "8443"),
    ("broker_service_url", "pulsar", "broker service url", "6650"),
    ("broker_service_url_tls", "pulsar+ssl", "broker service tls url", "6651"),
)
# Hosts with ports, separated by commas, and perhaps a slash at the end.
_HOSTS = re.compile(r"[^/,]+(,[^/,]+)*/?")


@router.get("", dependencies=[on_cluster(Action.READ)])
async def list_clusters(services: ServicesArg) -> Response:
    """The names of all clusters."""
    return Json(await services.clusters.names())


@router.get("/{cluster}", dependencies=[on_cluster(Action.READ)])
async def get_cluster(request: Request, services: ServicesArg) -> Response:
    """One cluster's addresses."""
    return json_record(await services.clusters.get(path_value(request, "cluster")))


@router.put("/{cluster}", dependencies=[on_cluster(Action.ADMINISTER)])
async def create_cluster(request: Request, services: ServicesArg) -> Response:
    """Register a cluster."""
    record = await _cluster_body(request)
    name = path_value(request, "cluster")
    if not is_entity_name(name):
        raise RestError(412, "Cluster name is not valid")
    # The addresses are not tried: the other cluster may be started later.
    await services.clusters.create(name, record)
    return empty()


@router.post("/{cluster}", dependencies=[on_cluster(Action.ADMINISTER)])
async def update_cluster(request: Request, services: ServicesArg) -> Response:
    """Change a cluster's addresses."""
    record = await _cluster_body(request)
    # The record as a whole: what the body leaves out is not kept.
    await services.clusters.update(path_value(request, "cluster"), record)
    return empty()


@router.delete("/{cluster}", dependencies=[on_cluster(Action.ADMINISTER)])
async def delete_cluster(request: Request, services: ServicesArg) -> Response:
    """Delete the record of a cluster. This broker's own is refused, for without its record none of
    its brokers would start."""
    name = path_value(request, "cluster")
    # Others may be deleted while topics are replicated there: their replicators then report it.
    if name == services.cluster:
        raise RestError(412, f"Cluster {name} is this broker's own and cannot be deleted")
    await services.clusters.delete(name)
    return no_content()


async def _cluster_body(request: Request) -> ClusterData:
    """The record in the body. Raises ``RestError`` 400 for an impossible URL."""
    body = await object_body(request)
    if body is None:
        raise RestError(400, "cluster data is required")
    # Unknown members are kept: newer versions of Pulsar may have written them.
    record = of_document(ClusterData, body)
    for field, scheme, what, port in _URLS:
        # Empty URLs are allowed: a cluster need not serve all four.
        url: str | None = getattr(record, field)
        start = f"{scheme}://"
        if url and not (url.startswith(start) and _HOSTS.fullmatch(url[len(start) :])):
            example = f"{scheme}://pulsar.example.com:{port}"
            raise RestError(400, f"Illegal {what}, example: {example}")
    return record
