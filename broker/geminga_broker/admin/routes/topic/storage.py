"""``…/{topic}/unload``, ``trim``, ``truncate``, ``terminate``, ``compaction``, ``internalStats``.

All of these are about the log of a topic.
Calls that change something change every partition of a partitioned topic.
"""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.documents.internal_stats import Document, log_info
from geminga_broker.admin.documents.message import message_id
from geminga_broker.admin.owner_routes import (
    explain_missing,
    of_each_partition,
    partitioned,
    policies_here,
    serve_here,
    to_each_partition,
    to_one_topic,
    to_partition,
)
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.services import Services
from geminga_broker.compaction.errors import CompactionRunning
from geminga_broker.errors import TopicNotFound
from geminga_cluster.errors import NamespaceNotFound
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_server.authorization import Action
from geminga_server.rest.access import on_topic
from geminga_server.rest.answers import Json, empty, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import TopicArg, flag

router = APIRouter(prefix="/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}")

# Upstream's text, for both calls.
NOT_COMPACTED = "Compaction on a non-persistent topic is not allowed"


@router.put("/unload", dependencies=[on_topic(Action.ADMINISTER)])
async def unload_topic(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Close the topic; its clients look it up again, and it is loaded again."""
    await to_each_partition(request, services, topic, services.broker.unload_topic)
    return no_content()


@router.post("/trim", dependencies=[on_topic(Action.ADMINISTER)])
async def trim_topic(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Delete ledgers that are acknowledged and not retained, without waiting for the next trim."""
    if not topic.is_persistent:
        raise RestError(405, "Trim on a non-persistent topic is not allowed")
    await to_each_partition(request, services, topic, services.broker.trim_topic)
    return empty()


@router.delete("/truncate", dependencies=[on_topic(Action.ADMINISTER)])
async def truncate_topic(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Move all subscriptions to the end and delete all messages, whatever retention is set."""
    if not topic.is_persistent:
        raise RestError(412, "unsupport truncate")
    await to_each_partition(request, services, topic, services.broker.truncate_topic)
    return no_content()


@router.post("/terminate", dependencies=[on_topic(Action.ADMINISTER)])
async def terminate_topic(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Terminate one topic: it never takes another message. Answers the id of its last one."""
    if not topic.is_persistent:
        raise RestError(406, "Need to provide a persistent topic name")
    await policies_here(services, topic)
    # Upstream has a call of its own for all partitions.
    if await services.partitioned_topics.partitions(topic):
        raise RestError(405, "Termination of a partitioned topic is not allowed")
    return Json(await to_one_topic(request, services, topic, partial(_terminate, services)))


@router.post("/terminate/partitions", dependencies=[on_topic(Action.ADMINISTER)])
async def terminate_partitions(
    request: Request, topic: TopicArg, services: ServicesArg
) -> Response:
    """Terminate every partition of a topic. Answers the ids of their last messages by number."""
    await policies_here(services, topic)
    partitions = await services.partitioned_topics.partitions(topic)
    if not partitions:
        raise RestError(
            405,
            "Termination of a non-partitioned topic is not allowed using partitioned-terminate"
            ", please use terminate commands",
        )

    ends: dict[str, object] = {}
    # One after the other: where one fails, the answer does not say which are terminated. Each is
    # asked for with the path of a single topic, as its owner serves that.
    for index in range(partitions):
        partition, end = topic.partition(index), partial(_terminate, services)
        ends[str(index)] = await to_partition(request, services, partition, end, rest="terminate")
    return Json(ends)


async def _terminate(services: Services, topic: TopicName) -> Document:
    """Terminate a topic that this broker owns."""
    last = await services.broker.terminate_topic(topic)
    # A copy, as the types of the members differ.
    return {**message_id(last, topic.partition_index)}


@router.get("/internalStats", dependencies=[on_topic(Action.READ)])
async def get_internal_stats(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """One topic's ledgers and cursors; with ``metadata`` also what is stored of each ledger."""
    try:
        await serve_here(request, services, topic)
        return Json(await _internal_stats(request, services, topic))
    except (TopicNotFound, NamespaceNotFound):
        if topic.is_persistent:
            await explain_missing(services, topic)
            raise
        # Upstream's text for non-persistent topics.
        raise RestError(404, "Topic not found") from None


@router.get("/partitioned-internalStats", dependencies=[on_topic(Action.READ)])
async def get_partitioned_internal_stats(
    request: Request, topic: TopicArg, services: ServicesArg
) -> Response:
    """The internal stats of each partition that exists."""
    record = await partitioned(services, topic)
    # Other owners answer the same request for one partition, with its query.
    stats = partial(_internal_stats, request, services)
    partitions = await of_each_partition(
        request, services, topic, record.partitions, stats, rest="internalStats"
    )
    metadata = {"partitions": record.partitions, "deleted": record.deleted}
    return Json({"metadata": metadata, "partitions": partitions})


@router.get("/internal-info", dependencies=[on_topic(Action.READ)])
async def get_internal_info(topic: TopicArg, services: ServicesArg) -> Response:
    """The stored records of a topic, or of each partition. Any broker answers without loading."""
    await policies_here(services, topic)
    if not topic.is_persistent:
        raise RestError(405, "Nothing is stored of a non-persistent topic")
    # The records of a loaded topic may lag behind: its open ledger is recorded without a size.
    count = await services.partitioned_topics.partitions(topic)
    if not count:
        # The records of the log and of its cursors.
        stored = await services.persistent_topics.stored(topic)
        if stored is None:
            raise TopicNotFound(str(topic))
        return Json(log_info(stored))
    partitions: dict[str, Document] = {}
    for partition in map(topic.partition, range(count)):
        stored = await services.persistent_topics.stored(partition)
        if stored is not None:
            partitions[str(partition)] = log_info(stored)
    return Json({"version": 0, "partitions": partitions})


async def _internal_stats(request: Request, services: Services, topic: TopicName) -> Document:
    # Takes a read from ZooKeeper for each ledger of the topic. Passed on with the query where
    # another broker is asked.
    with_metadata = flag(request, "metadata")
    return await services.broker.internal_stats(topic, with_metadata=with_metadata)


@router.put("/compaction", dependencies=[on_topic(Action.ADMINISTER)])
async def compact_topic(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Start the compaction of the topic, or of every partition; 409 where one is running."""
    if not topic.is_persistent:
        raise RestError(405, NOT_COMPACTED)
    try:
        await to_each_partition(request, services, topic, services.broker.compact_topic)
    # Of a partitioned topic, on any partition.
    except CompactionRunning as error:
        raise RestError(409, str(error)) from None
    return no_content()


@router.get("/compaction", dependencies=[on_topic(Action.READ)])
async def get_compaction(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """The state of the last compaction of a topic or partition."""
    if not topic.is_persistent:
        raise RestError(405, NOT_COMPACTED)
    await policies_here(services, topic)
    report = await to_one_topic(request, services, topic, services.broker.compaction_report)
    return Json({"status": report.status.value, "lastError": report.last_error})
