"""``…/{topic}/partitions``: partitioned topics are created, grown, deleted, and told about."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import cast
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.documents.topic_stats import TopicStats
from geminga_broker.admin.facade import Services, StatsQuery
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.peers import ask, of_topic
from geminga_broker.admin.routes.namespace.replication import (
    clusters_of,
    other_clusters,
    refusals_of_remotes,
)
from geminga_broker.admin.serving import policies_here, to_each, to_partition
from geminga_broker.errors import TopicExists, TopicNotFound
from geminga_broker.ownership.address import Owner
from geminga_broker.policies.auto_creation import PARTITIONS_MAX, auto_creation
from geminga_cluster.errors import PartitionedTopicNotFound
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_protocol.records.partitioned_topics import PartitionedTopicMetadata
from geminga_server.authorization import Action
from geminga_server.rest.access import on_topic
from geminga_server.rest.answers import json_record, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import TopicArg, flag, json_body

router = APIRouter(prefix="/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}/partitions")


# The body that asks for a subscription from the first message on (``MessageId.earliest``).
_FROM_THE_FIRST = b'{"ledgerId":-1,"entryId":-1}'


@router.get("", dependencies=[on_topic(Action.LOOKUP)])
async def get_partitions(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """How many partitions; 0 for a topic that has none.

    ``checkAllowAutoCreation`` asks as a client about to use the topic: one that would be created by
    it is told as if it were there, and a partitioned one is created.
    """
    policies = await policies_here(services, topic)
    record = await services.partitioned_topics.metadata(topic)
    if record is None and flag(request, "checkAllowAutoCreation"):
        rule = auto_creation(services.auto_creation, policies)
        if rule.is_allowed and rule.partitions and not await _is_topic(services, topic):
            await _create(services, topic, PartitionedTopicMetadata(partitions=rule.partitions))
            record = await services.partitioned_topics.metadata(topic)
        elif rule.is_allowed:
            record = PartitionedTopicMetadata()
    if record is None:
        if not await _is_topic(services, topic):
            raise TopicNotFound(str(topic))
        record = PartitionedTopicMetadata()
    return json_record(record)


@router.put("", dependencies=[on_topic(Action.ADMINISTER)])
async def create_partitions(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Create a partitioned topic: the body is the number, or ``{"partitions", "properties"}``.

    In the background it is created in the other clusters of its namespace, too; which of them had
    another topic of that name, its replication says.
    """
    record = await _metadata_body(request)
    policies = await policies_here(services, topic)
    if topic.partition_index >= 0:
        raise RestError(412, "Partitioned Topic Name should not contain '-partition-'")
    if record.partitions <= 0:
        raise RestError(406, "Number of partitions should be more than 0")
    _check_number(record.partitions)
    if await _is_topic(services, topic):
        raise TopicExists(str(topic))
    await _create(services, topic, record)
    if not flag(request, "createLocalTopicOnly"):
        services.remote_topics.create_soon(
            topic, record.partitions, other_clusters(services, policies.replication_clusters)
        )
    return no_content()


@router.post("", dependencies=[on_topic(Action.ADMINISTER)])
async def grow_partitions(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Add partitions; the new ones get the subscriptions of the others, from their beginning. The
    topic grows in the clusters that it is replicated to as well: whichever of them refuses, it has
    grown here."""
    wanted = (await _metadata_body(request)).partitions
    _check_number(wanted)

    async def prepare(partition: TopicName) -> None:
        if not topic.is_persistent:
            return
        for index in range(partition.partition_index):  # the first ones may be deleted alone
            if await _copy_subscriptions(request, services, topic.partition(index), partition):
                return

    others = [] if flag(request, "updateLocalTopicOnly") else await _grows_in(services, topic)
    try:
        await services.partitioned_topics.grow(topic, wanted, prepare)
    except PartitionedTopicNotFound:
        raise RestError(409, f"Topic {topic} is not the partitioned topic.") from None
    with refusals_of_remotes():
        await services.remote_topics.grow_in_each(topic, wanted, others)
    return no_content()


@router.delete("", dependencies=[on_topic(Action.ADMINISTER)])
async def delete_partitions(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Delete a partitioned topic with its partitions; ``force`` disconnects who uses them."""
    topics = services.partitioned_topics
    try:
        partitions = await topics.set_deleted(topic, deleted=True)
    except PartitionedTopicNotFound:
        if await _is_topic(services, topic):
            raise RestError(
                409,
                f"{topic} is a non-partitioned topic. Instead of calling "
                "delete-partitioned-topic please call delete.",
            ) from None
        raise RestError(404, f"Topic {topic} not found.") from None
    try:
        await _delete_all(request, services, topic, partitions)
    except BaseException:
        await topics.set_deleted(topic, deleted=False)
        raise
    await services.topic_policies.delete(topic)
    await services.schemas.delete_all(topic)
    await topics.delete(topic)
    return no_content()


async def _grows_in(services: Services, topic: TopicName) -> list[str]:
    """The other clusters in which a topic grows when it grows here. Raises ``RestError`` 422 where
    it is not to be in this one."""
    clusters = await clusters_of(services, topic)
    if clusters and services.cluster not in clusters:
        raise RestError(422, "Local cluster is not part of replicate cluster list")
    return other_clusters(services, clusters)


async def _create(services: Services, topic: TopicName, record: PartitionedTopicMetadata) -> None:
    await services.partitioned_topics.create(topic, record.partitions, record.properties)
    if topic.is_persistent:
        return
    for index in range(record.partitions):  # they exist only as long as a broker has them loaded
        partition = topic.partition(index)
        if (await services.ownership.owner(partition)).is_self:
            await services.broker.create_topic(partition, {})


async def _copy_subscriptions(
    request: Request, services: Services, source: TopicName, target: TopicName
) -> bool:
    """Give a new partition the durable subscriptions of an older one, from its first message;
    whether the older one is there. Either may be another broker's."""
    here, there = [await services.ownership.owner(each) for each in (source, target)]
    if here.is_self and there.is_self:
        return await services.broker.copy_subscriptions(source, target)
    get = partial(ask, services.calls, request, method="GET", query={})
    try:
        if here.is_self:
            stats = await services.broker.topic_stats(source, StatsQuery())
        else:
            answer = await get(here, of_topic(request, source, "stats"))
            stats = cast("TopicStats", answer.json())
    except TopicNotFound:
        return False
    except RestError as error:
        if error.status == 404:
            return False
        raise
    for name, subscription in stats["subscriptions"].items():
        if not subscription["isDurable"]:
            continue
        if there.is_self:
            topic = await services.broker.persistent_topic(target)
            await topic.create_subscription(name, from_earliest=True)
        else:
            path = of_topic(request, target, f"subscription/{quote(name, safe='')}")
            await _subscribe(services, request, there, path)
    return True


async def _subscribe(services: Services, request: Request, owner: Owner, path: str) -> None:
    """Make a subscription at another broker, from the first message; it may exist."""
    try:
        await ask(
            services.calls, request, owner, path, method="PUT", query={}, body=_FROM_THE_FIRST
        )
    except RestError as error:
        if error.status != 409:
            raise


async def _delete_all(
    request: Request, services: Services, topic: TopicName, partitions: int
) -> None:
    """Delete the partitions; one that is gone already is no fault."""

    async def delete(partition: TopicName) -> None:
        await services.broker.delete_topic(partition, force=flag(request, "force"))

    async def delete_partition(index: int) -> None:
        with suppress(TopicNotFound):
            await to_partition(request, services, topic.partition(index), delete, rest="")

    await to_each(delete_partition, range(partitions))


async def _is_topic(services: Services, topic: TopicName) -> bool:
    """Whether there is a topic of exactly this name that is not partitioned; of one that is not
    persistent only its owner knows."""
    if topic.is_persistent:
        return await services.persistent_topics.exists(topic)
    return await services.non_persistent_topics.exists(topic)


async def _metadata_body(request: Request) -> PartitionedTopicMetadata:
    """The body: a bare number, or an object with ``partitions`` and ``properties``."""
    body = await json_body(request)
    if body is None:
        raise RestError(400, "The request entity cannot be empty.")
    properties = None
    if isinstance(body, dict):
        properties = _properties(body.get("properties"))
        body = body.get("partitions")
    if isinstance(body, int) and not isinstance(body, bool):
        return PartitionedTopicMetadata(partitions=body, properties=properties)
    raise RestError(400, "The body should be a number of partitions")


def _properties(properties: object) -> dict[str, str] | None:
    if properties is None:
        return None
    if isinstance(properties, dict) and all(isinstance(each, str) for each in properties.values()):
        return properties
    raise RestError(400, "The properties should be a JSON object whose values are strings")


def _check_number(partitions: int) -> None:
    if partitions > PARTITIONS_MAX:
        raise RestError(
            406, f"Number of partitions should be less than or equal to {PARTITIONS_MAX}"
        )
