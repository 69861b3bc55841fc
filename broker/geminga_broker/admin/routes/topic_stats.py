"""``…/{topic}/stats`` and ``partitioned-stats``: what a topic is doing."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.documents.aggregation import aggregate
from geminga_broker.admin.documents.topic_stats import TopicStats, as_json
from geminga_broker.admin.facade import Services, StatsQuery
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.serving import explain_missing, partitioned, serve_here
from geminga_broker.errors import TopicNotFound
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_server.authorization import Action
from geminga_server.rest.access import on_topic
from geminga_server.rest.answers import Json
from geminga_server.rest.parameters import TopicArg, flag

router = APIRouter(prefix="/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}")


@router.get("/stats", dependencies=[on_topic(Action.READ)])
async def get_stats(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """One topic or one partition; it is loaded if it exists."""
    await serve_here(request, services, topic)
    try:
        stats = await services.broker.topic_stats(topic, _query(request))
    except TopicNotFound:
        await explain_missing(services, topic)
        raise
    return Json(as_json(stats))


@router.get("/partitioned-stats", dependencies=[on_topic(Action.READ)])
async def get_partitioned_stats(
    request: Request, topic: TopicArg, services: ServicesArg
) -> Response:
    """A partitioned topic as a whole, and with ``perPartition`` each partition."""
    record = await partitioned(services, topic)
    query = _query(request)
    partitions: dict[str, TopicStats] = {}
    for index in range(record.partitions):
        stats = await _partition_stats(services, topic.partition(index), query)
        if stats is not None:
            partitions[str(topic.partition(index))] = stats
    whole = aggregate(
        partitions,
        {"partitions": record.partitions, "deleted": record.deleted},
        per_partition=flag(request, "perPartition", default=True),
    )
    return Json(as_json(whole))


async def _partition_stats(
    services: Services, partition: TopicName, query: StatsQuery
) -> TopicStats | None:
    """A partition's stats, None for one that is not there, or is another broker's."""
    if not (await services.ownership.owner(partition)).is_self:
        return None
    try:
        return await services.broker.topic_stats(partition, query)
    except TopicNotFound:
        return None


def _query(request: Request) -> StatsQuery:
    return StatsQuery(
        precise_backlog=flag(request, "getPreciseBacklog"),
        subscription_backlog_size=flag(request, "subscriptionBacklogSize", default=True),
        earliest_time_in_backlog=flag(request, "getEarliestTimeInBacklog"),
        exclude_publishers=flag(request, "excludePublishers"),
        exclude_consumers=flag(request, "excludeConsumers"),
    )
