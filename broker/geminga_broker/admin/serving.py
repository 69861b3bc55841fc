"""A request about a topic: bringing it to the broker that serves it, saying what is not there."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode

from fastapi import Request

from geminga_broker.admin.facade import Services
from geminga_broker.admin.parameters import listener_of
from geminga_broker.errors import TopicNotFound
from geminga_broker.ownership.address import Owner
from geminga_broker.policies.auto_creation import auto_creation
from geminga_broker.topics.topic import Topic
from geminga_cluster.errors import PartitionedTopicNotFound
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_protocol.records.partitioned_topics import PartitionedTopicMetadata
from geminga_runtime.work_pool import WorkPool
from geminga_server.rest.errors import RestError, ServedElsewhere
from geminga_server.rest.parameters import flag

# Where something is done to many topics: each may have to be loaded, waits for its cursors, or for
# its ledgers' deletions, one after the other.
TOPICS_AT_ONCE_MAX = 16

ItemT = TypeVar("ItemT")

Work = Callable[[TopicName], Awaitable[None]]
"""Something that is done to a topic."""


async def serve_here(request: Request, services: Services, topic: TopicName) -> None:
    """Return if this broker owns the topic's bundle, after acquiring it if that is for it to do.

    Raises ``ServedElsewhere`` with this request's URL at the broker to ask, ``NamespaceNotFound``.
    """
    owner = await owner_asked_for(request, services, topic)
    if not owner.is_self:
        raise ServedElsewhere(elsewhere(request, owner))


async def owner_asked_for(request: Request, services: Services, topic: TopicName) -> Owner:
    """The topic's owner, or the broker to ask, with the authority that the request has."""
    authoritative = flag(request, "authoritative")
    return await services.ownership.owner(topic, authoritative=authoritative)


def elsewhere(request: Request, owner: Owner) -> str:
    """This request's URL at the broker that is to be asked instead."""
    query = [
        pair
        for pair in parse_qsl(request.url.query, keep_blank_values=True)
        if pair[0] != "authoritative"
    ]
    query.append(("authoritative", "true" if owner.is_authoritative else "false"))
    # The routed path is the raw one: the owner gets the name as it was sent.
    url = owner.web_url(listener_of(request), is_tls=request.url.scheme == "https")
    return f"{url}{request.scope['path']}?{urlencode(query)}"


async def partitioned(services: Services, topic: TopicName) -> PartitionedTopicMetadata:
    """The record of a partitioned topic. Raises ``NamespaceNotFound``,
    ``PartitionedTopicNotFound``."""
    await services.namespaces.policies(topic.namespace)
    record = await services.partitioned_topics.metadata(topic)
    if record is None:
        raise PartitionedTopicNotFound(str(topic))
    return record


async def explain_missing(services: Services, topic: TopicName) -> None:
    """Raise ``RestError`` 404 for a topic that is a partition which is not there yet."""
    if topic.partition_index >= 0 and await services.partitioned_topics.metadata(topic.base):
        raise RestError(404, "Topic partitions were not yet created") from None


async def to_each_partition(
    request: Request, services: Services, topic: TopicName, work: Work
) -> None:
    """Do ``work`` to a topic, or to each partition of a partitioned one."""
    await services.namespaces.policies(topic.namespace)
    partitions = await services.partitioned_topics.partitions(topic)
    if partitions:
        for index in range(partitions):
            await _to_partition(services, topic.partition(index), work)
        return
    await to_one_topic(request, services, topic, work)


async def to_each(work: Callable[[ItemT], Awaitable[None]], items: Iterable[ItemT]) -> None:
    """Do ``work`` to each of ``items``, topics or their numbers, a few at a time and whatever
    becomes of the others; when all are done, the first of the errors is raised."""
    await WorkPool(TOPICS_AT_ONCE_MAX).run(work, deque(items))


async def to_one_topic(request: Request, services: Services, topic: TopicName, work: Work) -> None:
    """Do ``work`` to a topic that is not partitioned, or to one partition."""
    await serve_here(request, services, topic)
    try:
        await work(topic)
    except TopicNotFound:
        await explain_missing(services, topic)
        raise


async def _to_partition(services: Services, partition: TopicName, work: Work) -> None:
    """One that was not created yet needs nothing done to it."""
    await serve_partition(services, partition)
    try:
        await work(partition)
    except TopicNotFound:
        return


async def serve_partition(services: Services, partition: TopicName) -> None:
    """Return if this broker owns the partition: what is for all of them goes to no other broker.

    Raises ``RestError`` 503.
    """
    if not (await services.ownership.owner(partition)).is_self:
        raise RestError(503, f"{partition} is served by another broker: ask for it alone")


async def topic_here(services: Services, topic: TopicName, *, create: bool = False) -> Topic:
    """A topic that keeps its messages; made, with ``create``, where its namespace wants that.

    Raises ``TopicNotFound``, as it does for every topic that keeps none.
    """
    if not topic.is_persistent:
        raise TopicNotFound(str(topic))
    if create:
        policies = await services.namespaces.policies(topic.namespace)
        create = auto_creation(services.auto_creation, policies).is_allowed
    return await services.broker.persistent_topic(topic, create=create)


async def refuse_partitioned(services: Services, topic: TopicName, reason: str) -> None:
    """Raise ``RestError`` 405 for a partitioned topic as a whole."""
    await services.namespaces.policies(topic.namespace)
    if topic.is_persistent and await services.partitioned_topics.partitions(topic):
        raise RestError(405, reason)
