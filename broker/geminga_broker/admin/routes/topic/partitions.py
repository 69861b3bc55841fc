"""``…/{topic}/partitions``: create, grow and delete partitioned topics, and show their number."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import cast
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.documents.topic_stats import TopicStats
from geminga_broker.admin.owner_routes import policies_here, to_each, to_partition
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.peers import ask, of_topic
from geminga_broker.admin.routes.namespace.replication import (
    clusters_of,
    other_clusters,
    refusals_of_remotes,
)
from geminga_broker.admin.services import Services
from geminga_broker.admin.topics.stats import StatsQuery
from geminga_broker.errors import TopicExists, TopicNotFound
from geminga_broker.policies.auto_creation import PARTITIONS_MAX, auto_creation
from geminga_cluster.errors import PartitionedTopicExists, PartitionedTopicNotFound
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.partitioned_topics import PartitionedTopicMetadata
from geminga_server.authorization import Action
from geminga_server.rest.access import on_topic
from geminga_server.rest.answers import json_record, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import TopicArg, flag, json_body

router = APIRouter(prefix="/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}/partitions")

# The body of a request for a subscription that begins with the first message
# (``MessageId.earliest``).
_FROM_THE_FIRST = b'{"ledgerId":-1,"entryId":-1}'


@router.get("", dependencies=[on_topic(Action.LOOKUP)])
async def get_partitions(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """The number of partitions; 0 for a topic that is not partitioned.

    With ``checkAllowAutoCreation`` a client is about to use the topic: one that its use would
    create is answered as if it existed, and a partitioned one is created.
    """
    policies = await policies_here(services, topic)
    record = await services.partitioned_topics.metadata(topic)
    if record is None and flag(request, "checkAllowAutoCreation"):
        rule = auto_creation(services.auto_creation, policies)
        # The record is created here, by whichever broker is asked: partitions have owners, the
        # whole has none.
        if rule.is_allowed and rule.partitions and not await _is_topic(services, topic):
            with suppress(PartitionedTopicExists):  # another client's request was faster
                await _create(services, topic, PartitionedTopicMetadata(partitions=rule.partitions))
            record = await services.partitioned_topics.metadata(topic)
        # Its use would create it, without partitions.
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

    In the background it is created in the other clusters of its namespace, too. Where one of them
    has another topic of that name, the stats of its replication say so.
    """
    record = await _metadata_body(request)
    policies = await policies_here(services, topic)
    # The partitions of a partition could not be named.
    if topic.partition_index >= 0:
        raise RestError(412, "Partitioned Topic Name should not contain '-partition-'")
    if record.partitions <= 0:
        raise RestError(406, "Number of partitions should be more than 0")
    _check_number(record.partitions)
    # A topic that is not partitioned may have this very name already.
    if await _is_topic(services, topic):
        raise TopicExists(str(topic))
    await _create(services, topic, record)
    # After the record: a failure here would leave the others with a topic that this cluster lacks.
    if not flag(request, "createLocalTopicOnly"):
        # Not awaited: other clusters may be away for long, and the topic exists here.
        services.remote_topics.create_soon(
            topic, record.partitions, other_clusters(services, policies.replication_clusters)
        )
    return no_content()


@router.post("", dependencies=[on_topic(Action.ADMINISTER)])
async def grow_partitions(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Add partitions; the new ones get the subscriptions of the others, from their first message.

    The topic grows in the clusters that it is replicated to, too; where one of them refuses, it has
    grown here all the same.
    """
    wanted = (await _metadata_body(request)).partitions
    _check_number(wanted)

    async def prepare(partition: TopicName) -> None:
        # Called for each new partition before the record shows it: no client can use one without
        # its subscriptions.
        if not topic.is_persistent:
            return
        # Any older partition will do. The first ones may be missing: each can be deleted alone.
        for index in range(partition.partition_index):
            if await _copy_subscriptions(request, services, topic.partition(index), partition):
                return

    others: list[str] = []
    if not flag(request, "updateLocalTopicOnly"):
        clusters = await clusters_of(services, topic)
        if clusters and services.cluster not in clusters:
            raise RestError(422, "Local cluster is not part of replicate cluster list")
        others = other_clusters(services, clusters)
    try:
        await services.partitioned_topics.grow(topic, wanted, prepare)
    except PartitionedTopicNotFound:
        raise RestError(409, f"Topic {topic} is not the partitioned topic.") from None
    with refusals_of_remotes():
        await services.remote_topics.grow_in_each(topic, wanted, others)
    return no_content()


@router.delete("", dependencies=[on_topic(Action.ADMINISTER)])
async def delete_partitions(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Delete a partitioned topic with its partitions; ``force`` disconnects their clients first."""
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

    delete = partial(services.broker.topics.delete, force=flag(request, "force"))

    async def delete_partition(index: int) -> None:
        with suppress(TopicNotFound):  # deleted already, or never created
            await to_partition(request, services, topic.partition(index), delete, rest="")

    # While it is marked as deleted, no partition of it is created again.
    try:
        await to_each(delete_partition, range(partitions))
    except BaseException:
        # Also where the request is cancelled: a topic that stays marked could not be used.
        await topics.set_deleted(topic, deleted=False)
        raise
    # Partitions have no policies and schemas of their own: those of the whole go with it. What
    # fails from here on leaves the mark. The same request can be made again, and finds no
    # partition.
    await services.topic_policies.delete(topic)
    await services.schemas.delete_all(topic)
    await topics.delete(topic)
    return no_content()


async def _create(services: Services, topic: TopicName, record: PartitionedTopicMetadata) -> None:
    """Create the record of a partitioned topic. Its partitions are created when they are used."""
    await services.partitioned_topics.create(topic, record.partitions, record.properties)
    if topic.is_persistent:
        return
    # Non-persistent ones exist only while a broker has them loaded: this broker loads its own.
    # Loading is all that creating means for these. The owners of the others load theirs when a
    # client comes.
    for index in range(record.partitions):
        partition = topic.partition(index)
        if (await services.ownership.owner(partition)).is_self:
            await services.broker.topics.create(partition, {})


async def _copy_subscriptions(
    request: Request, services: Services, source: TopicName, target: TopicName
) -> bool:
    """Give a new partition the durable subscriptions of an older one, from its first message;
    False where the older one does not exist. Other brokers may own either of them."""
    # The owners, which acquire the partitions' bundles if they have none.
    here, there = [await services.ownership.owner(each) for each in (source, target)]
    if here.is_self and there.is_self:
        return await services.broker.copy_subscriptions(source, target)
    # Asks another owner, without the query of this request.
    get = partial(ask, services.calls, request, method="GET", query={})
    try:
        # The names of the subscriptions come from the stats, the one call that every broker
        # answers.
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
        # Others end with their consumer.
        if not subscription["isDurable"]:
            continue
        if there.is_self:
            topic = await services.broker.persistent_topic(target)
            await topic.subscribing.create(name, from_earliest=True)
        else:
            path = of_topic(request, target, f"subscription/{quote(name, safe='')}")
            try:
                # As a client would create them: from the first message.
                await ask(
                    services.calls,
                    request,
                    there,
                    path,
                    method="PUT",
                    query={},
                    body=_FROM_THE_FIRST,
                )
            except RestError as error:
                if error.status != 409:  # it exists already
                    raise
    return True


async def _is_topic(services: Services, topic: TopicName) -> bool:
    """Whether there is a topic of exactly this name that is not partitioned. Only the owner of a
    non-persistent one knows."""
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
        properties = body.get("properties")
        if properties is not None and not (
            isinstance(properties, dict)
            and all(isinstance(each, str) for each in properties.values())
        ):
            raise RestError(400, "The properties should be a JSON object whose values are strings")
        body = body.get("partitions")
    # A bool is an int, too.
    if isinstance(body, int) and not isinstance(body, bool):
        return PartitionedTopicMetadata(partitions=body, properties=properties)
    raise RestError(400, "The body should be a number of partitions")


def _check_number(partitions: int) -> None:
    if partitions > PARTITIONS_MAX:
        raise RestError(
            406, f"Number of partitions should be less than or equal to {PARTITIONS_MAX}"
        )
