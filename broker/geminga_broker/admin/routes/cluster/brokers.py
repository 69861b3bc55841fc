"""``/admin/v2/brokers`` and ``/admin/v2/broker-stats``: the living brokers, the health and settings
of this one, and its load report."""

from __future__ import annotations

import asyncio
import logging

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.ownership.addresses.address import LookupReason
from geminga_broker.ownership.assignment.placement import candidate
from geminga_runtime.errors import GemingaError
from geminga_server.authorization import Action
from geminga_server.http import server
from geminga_server.rest.access import on_cluster, on_server
from geminga_server.rest.answers import Json, json_record, text
from geminga_server.rest.errors import RestError, ServedElsewhere

router = APIRouter(prefix="/admin/v2/brokers")
stats_router = APIRouter(prefix="/admin/v2/broker-stats")

log = logging.getLogger(__name__)

# A health check publishes and reads one message. The time is upstream's.
HEALTH_TIMEOUT_S = 30.0
# Monitoring requests these every few seconds: they are not logged one by one.
# ``server.ROUTINE_PATHS`` has those that every part serves.
ROUTINE_PATHS = server.ROUTINE_PATHS | {f"{router.prefix}/health", f"{router.prefix}/ready"}


@router.get("", dependencies=[on_cluster(Action.READ)])
async def list_brokers(services: ServicesArg) -> Response:
    """The ids of the living brokers."""
    return Json(await services.brokers.living.ids())


@router.get("/health", dependencies=[on_server(Action.READ)])
async def check_health(request: Request, services: ServicesArg) -> Response:
    """Whether a message can be published and read here."""
    # Tools ask any broker for the health of any other (``brokerId``).
    await _redirect_to_broker(request, services)
    # Upstream has a topic for each version of topic names; here both are the same.
    version = request.query_params.get("topicVersion")
    # Any other word is no enum of upstream's, whose framework answers 404.
    if version not in (None, "V1", "V2"):
        raise RestError(404, f"Unknown topic version {version}")
    try:
        # Longer than the check's own time (``CHECK_TIMEOUT_S``), which also waits for checks before
        # it.
        async with asyncio.timeout(HEALTH_TIMEOUT_S):
            await services.check_health()
    except (GemingaError, TimeoutError) as error:
        # The client that asks may be a probe that keeps no reasons: the log has them.
        log.warning("health check failed", extra={"why": repr(error)})
        raise RestError(503, f"Health check failed: {error!r}") from error
    return text("ok")


@router.get("/ready", dependencies=[on_server(Action.READ)])
async def is_ready() -> Response:
    """Whether the broker answers requests, as it does with this one."""
    # No check: one that publishes a message is ``health``.
    return text("ok")


@router.get("/version", dependencies=[on_server(Action.READ)])
async def get_version(services: ServicesArg) -> Response:
    """The version of Pulsar that this broker answers as."""
    return text(services.version)


@router.get("/leaderBroker", dependencies=[on_cluster(Action.READ)])
async def get_leader(services: ServicesArg) -> Response:
    """The broker that is the leader of the cluster."""
    # From memory; between two leaders there is none.
    leader = await services.brokers.election.leader()
    if leader is None:
        raise RestError(404, "Couldn't find leader broker")
    return Json({"serviceUrl": leader.service_url, "brokerId": leader.broker_id})


@router.get("/configuration", dependencies=[on_cluster(Action.READ)])
async def list_dynamic_settings() -> Response:
    """The names of the settings that can be changed while the broker runs: none."""
    return Json([])


@router.get("/configuration/values", dependencies=[on_cluster(Action.READ)])
async def get_changed_settings() -> Response:
    """The settings that were changed so: none."""
    return Json({})


@router.get("/configuration/runtime", dependencies=[on_cluster(Action.READ)])
async def get_settings(services: ServicesArg) -> Response:
    """The settings that this broker runs with, under upstream's names, as text."""
    return Json(dict(services.configuration))


@router.post("/configuration/{name}/{value}", dependencies=[on_cluster(Action.ADMINISTER)])
async def change_setting() -> Response:
    """Refuse, as upstream does for a setting that cannot be changed while it runs."""
    # Settings are read once, at the start: none is dynamic.
    raise RestError(412, "Can't update non-dynamic configuration")


@router.delete("/configuration/{name}", dependencies=[on_cluster(Action.ADMINISTER)])
async def reset_setting() -> Response:
    """Refuse, as upstream does for a setting that was not changed while it runs."""
    raise RestError(412, "Can't delete non-dynamic configuration")


@router.get("/{cluster}", dependencies=[on_cluster(Action.READ)])
async def list_brokers_of_cluster(services: ServicesArg) -> Response:
    """The ids of the living brokers of this cluster; as upstream, whichever was named."""
    return Json(await services.brokers.living.ids())


@stats_router.get("/load-report", dependencies=[on_server(Action.READ)])
async def get_load_report(services: ServicesArg) -> Response:
    """The load report that this broker would write to ZooKeeper now."""
    # Measured now; ZooKeeper has the last one that differed enough to be written.
    return json_record(services.brokers.record())


@stats_router.get(
    "/broker-resource-availability/{tenant}/{namespace}", dependencies=[on_server(Action.READ)]
)
async def get_resource_availability() -> Response:
    """Refuse, as upstream does with its modular load manager: only the one before it had units of
    resources."""
    raise RestError(409, "The load manager does not support this operation")


async def _redirect_to_broker(request: Request, services: ServicesArg) -> None:
    """Redirect a request about another broker to it. Raises ``RestError`` 404 if it is unknown."""
    broker_id = request.query_params.get("brokerId")
    if broker_id is None or broker_id == services.ownership.address.broker_id:
        return
    # The registrations of all living brokers, by id.
    record = (await services.brokers.view()).loads.get(broker_id)
    if record is None:
        raise RestError(404, f"Broker id '{broker_id}' not found in available brokers.")
    # By the scheme that the client has used.
    is_tls = request.url.scheme == "https"
    url = candidate(record, LookupReason.OWNS).rest_url(is_tls=is_tls)
    # The query again, with the id, so that the other broker finds itself named.
    raise ServedElsewhere(f"{url}/admin/v2/brokers/health?{request.url.query}")
