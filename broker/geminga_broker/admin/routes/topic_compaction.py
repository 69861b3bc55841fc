"""``…/{topic}/compaction``: compact a topic now, and ask how that goes."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.serving import (
    explain_missing,
    policies_here,
    serve_here,
    to_each_partition,
)
from geminga_broker.compaction.errors import CompactionRunning
from geminga_broker.errors import TopicNotFound
from geminga_server.authorization import Action
from geminga_server.rest.access import on_topic
from geminga_server.rest.answers import Json, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import TopicArg

router = APIRouter(prefix="/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}")

NOT_COMPACTED = "Compaction on a non-persistent topic is not allowed"


@router.put("/compaction", dependencies=[on_topic(Action.ADMINISTER)])
async def compact_topic(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Begin to compact the topic, or every partition; 409 where that goes on already."""
    if not topic.is_persistent:
        raise RestError(405, NOT_COMPACTED)
    try:
        await to_each_partition(request, services, topic, services.broker.compact_topic)
    except CompactionRunning as error:
        raise RestError(409, str(error)) from None
    return no_content()


@router.get("/compaction", dependencies=[on_topic(Action.READ)])
async def get_compaction(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """How the last compaction of a topic, or partition, goes or went."""
    if not topic.is_persistent:
        raise RestError(405, NOT_COMPACTED)
    await policies_here(services, topic)
    await serve_here(request, services, topic)
    try:
        report = await services.broker.compaction_report(topic)
    except TopicNotFound:
        await explain_missing(services, topic)
        raise
    return Json({"status": report.status.value, "lastError": report.last_error})
