"""``…/{topic}/stats`` and ``partitioned-stats``: counters, rates and backlogs of a topic."""

from __future__ import annotations

from functools import partial
from typing import cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.documents.aggregation import aggregate
from geminga_broker.admin.documents.topic_stats import TopicStats, as_json
from geminga_broker.admin.owner_routes import (
    of_each_partition,
    partitioned,
    to_one_topic,
)
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.topics.stats import StatsQuery
from geminga_server.authorization import Action
from geminga_server.rest.access import on_topic
from geminga_server.rest.answers import Json
from geminga_server.rest.parameters import TopicArg, flag

router = APIRouter(prefix="/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}")


@router.get("/stats", dependencies=[on_topic(Action.READ)])
async def get_stats(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """One topic or one partition; it is loaded if it exists."""
    # Not called where the request is redirected to the owner.
    stats = partial(services.broker.topic_stats, query=_query(request))
    return Json(as_json(await to_one_topic(request, services, topic, stats)))


@router.get("/partitioned-stats", dependencies=[on_topic(Action.READ)])
async def get_partitioned_stats(
    request: Request, topic: TopicArg, services: ServicesArg
) -> Response:
    """A partitioned topic as a whole, and with ``perPartition`` each partition."""
    record = await partitioned(services, topic)
    stats = partial(services.broker.topic_stats, query=_query(request))
    # Owners get this request's query, so each leaves out what is not wanted.
    found = await of_each_partition(
        request, services, topic, record.partitions, stats, rest="stats"
    )
    # The sums, from what the owners of the partitions have answered.
    whole = aggregate(
        cast("dict[str, TopicStats]", found),
        {"partitions": record.partitions, "deleted": record.deleted},
        per_partition=flag(request, "perPartition", default=True),
    )
    return Json(as_json(whole))


def _query(request: Request) -> StatsQuery:
    # The names and the defaults are upstream's.
    return StatsQuery(
        precise_backlog=flag(request, "getPreciseBacklog"),
        subscription_backlog_size=flag(request, "subscriptionBacklogSize", default=True),
        earliest_time_in_backlog=flag(request, "getEarliestTimeInBacklog"),
        exclude_publishers=flag(request, "excludePublishers"),
        exclude_consumers=flag(request, "excludeConsumers"),
    )
