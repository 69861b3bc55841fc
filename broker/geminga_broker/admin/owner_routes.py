"""Brings a request about topics or bundles to the brokers that own them.

A request about one topic is redirected to its owner (``serve_here``). One about the partitions of
a topic or the bundles of a namespace is taken apart: this broker serves its own part, and asks the
other owners for theirs (``to_each_partition``, ``to_each_bundle``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode

from fastapi import Request

from geminga_broker.admin.parameters import listener_of
from geminga_broker.admin.peers import PARTITION_MISSING, ask, of_topic, raise_if_missing
from geminga_broker.admin.services import Services
from geminga_broker.errors import TopicNotFound
from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.errors import NotOwned
from geminga_broker.policies.auto_creation import auto_creation
from geminga_broker.topics.topic import Topic
from geminga_cluster.errors import PartitionedTopicNotFound
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_protocol.records.cluster.partitioned_topics import PartitionedTopicMetadata
from geminga_runtime.work_pool import WorkPool
from geminga_server.rest.errors import RestError, ServedElsewhere
from geminga_server.rest.parameters import flag

# How many topics of one request are worked on at a time. Each may have to be loaded, or waits for
# its cursors, or for its ledgers to be deleted. Of one request: several requests at once have as
# many each.
TOPICS_AT_ONCE_MAX = 16

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

# What is done to one topic; returns a JSON value.
Work = Callable[[TopicName], Awaitable[object]]


async def serve_here(request: Request, services: Services, topic: TopicName) -> None:
    """Return if this broker owns the topic's bundle, which it acquires if it is the one to do so.

    Raises ``ServedElsewhere`` with this request's URL at the broker to ask, ``NamespaceNotFound``,
    ``ServedInOtherClusters``.
    """
    # Acquires the bundle where it has no owner and is placed on this broker.
    owner = await owner_asked_for(request, services, topic)
    # A redirect, and not a request of this broker's own: the client's next requests go to the right
    # broker at once.
    if not owner.is_self:
        raise ServedElsewhere(elsewhere(request, owner))


async def owner_asked_for(request: Request, services: Services, topic: TopicName) -> Owner:
    """The topic's owner, or the broker to ask instead.

    A request with authority was sent here by the broker that decides, so that this one acquires a
    bundle that has no owner.
    """
    # Repeated by ``elsewhere`` in the redirect, so that it reaches the next broker.
    authoritative = flag(request, "authoritative")
    return await services.ownership.owner(topic, authoritative=authoritative)


def elsewhere(request: Request, owner: Owner) -> str:
    """This request's URL at the broker to ask instead."""
    query = [
        pair
        for pair in parse_qsl(request.url.query, keep_blank_values=True)
        if pair[0] != "authoritative"
    ]
    # Where the placement was decided, the next broker has to acquire the bundle, and not to decide
    # again.
    query.append(("authoritative", "true" if owner.is_authoritative else "false"))
    # The routed path is the raw one: the owner gets the name encoded as the client did.
    url = owner.web_url(listener_of(request), is_tls=request.url.scheme == "https")
    return f"{url}{request.scope['path']}?{urlencode(query)}"


async def policies_here(services: Services, topic: TopicName) -> Policies:
    """The policies of a topic's namespace, if this cluster serves it, or a peer cluster.

    Raises ``NamespaceNotFound``, ``ServedInOtherClusters``.
    """
    policies = await services.namespaces.policies(topic.namespace)
    # Raises unless this cluster, or a peer cluster, serves the namespace. The answer is not used:
    # clients of a peer cluster are redirected at the owner's lookup.
    await services.ownership.peer_of(topic.namespace)
    return policies


async def partitioned(services: Services, topic: TopicName) -> PartitionedTopicMetadata:
    """The record of a partitioned topic. Raises ``NamespaceNotFound``,
    ``PartitionedTopicNotFound``."""
    await policies_here(services, topic)
    # None for a topic that is not partitioned, or does not exist.
    record = await services.partitioned_topics.metadata(topic)
    if record is None:
        raise PartitionedTopicNotFound(str(topic))
    return record


async def explain_missing(services: Services, topic: TopicName) -> None:
    """Raise ``RestError`` 404, in upstream's words, for a partition that was not created yet; for
    other topics the caller's own error is right."""
    # A partition of a topic that exists: creating the missing partitions would help. The metadata
    # of the whole topic: where it is missing, the name only looks like a partition's.
    if topic.partition_index >= 0 and await services.partitioned_topics.metadata(topic.base):
        raise RestError(404, PARTITION_MISSING) from None


async def to_each_partition(
    request: Request, services: Services, topic: TopicName, work: Work
) -> list[object]:
    """Do ``work`` to a topic, or to each partition of a partitioned one; other owners are asked by
    the same request. Returns the results in the order of the partitions."""
    # First: a namespace that does not exist is reported as that, and not as a missing topic.
    await policies_here(services, topic)
    partitions = await services.partitioned_topics.partitions(topic)
    if not partitions:
        # One topic is redirected to its owner, rather than asked for there: its client follows.
        return [await to_one_topic(request, services, topic, work)]
    answers: list[object] = []
    for partition in map(topic.partition, range(partitions)):
        with suppress(TopicNotFound):  # not created yet, so that there is nothing to do
            answers.append(await to_partition(request, services, partition, work))
    return answers


async def to_partition(
    request: Request,
    services: Services,
    partition: TopicName,
    work: Work,
    *,
    rest: str | None = None,
) -> object:
    """Do ``work`` to a partition if this broker owns it; else have its owner answer this request
    about it, or the one whose path ends with ``rest``. Returns decoded JSON.

    Raises ``TopicNotFound``, ``SubscriptionNotFound``, ``RestError``, ``ServerUnreachable``.
    """
    # Acquires the bundle if it has no owner and is placed on this broker.
    owner = await services.ownership.owner(partition)
    if owner.is_self:
        return await work(partition)
    try:
        answer = await ask(services.calls, request, owner, of_topic(request, partition, rest))
    except RestError as error:
        # Only the text of the other broker tells what is missing; here it becomes the same error as
        # of a partition of this broker's.
        raise_if_missing(error, partition)
        raise
    return answer.json()


async def of_each_partition(
    request: Request,
    services: Services,
    topic: TopicName,
    partitions: int,
    work: Work,
    *,
    rest: str,
) -> dict[str, object]:
    """The results of ``work`` by the full name of each existing partition, in their order."""
    # By number, not by name: names sort 10 before 2.
    answers: dict[int, object] = {}

    async def ask_for(index: int) -> None:
        with suppress(TopicNotFound):
            partition = topic.partition(index)
            # Answers come in any order; they are sorted by the number of the partition below.
            answers[index] = await to_partition(request, services, partition, work, rest=rest)

    await to_each(ask_for, range(partitions))
    # Missing partitions are left out: a partition is created by its first user.
    return {str(topic.partition(index)): answers[index] for index in sorted(answers)}


async def to_each(work: Callable[[ItemT], Awaitable[None]], items: Iterable[ItemT]) -> None:
    """Do ``work`` to each of ``items``, topics or their numbers, a few at a time.

    A failure stops none of the others; when all are done, the first error is raised.
    """
    await WorkPool(TOPICS_AT_ONCE_MAX).run(work, deque(items))


async def to_one_topic(
    request: Request,
    services: Services,
    topic: TopicName,
    work: Callable[[TopicName], Awaitable[ResultT]],
) -> ResultT:
    """Do ``work`` to a topic that is not partitioned, or to one partition, if this broker owns it.

    Raises ``ServedElsewhere``, ``TopicNotFound``, and ``RestError`` for a partition that was not
    created yet.
    """
    # Raises before anything is done, so that a client that follows the redirect repeats nothing.
    await serve_here(request, services, topic)
    try:
        return await work(topic)
    except TopicNotFound:
        await explain_missing(services, topic)
        raise


async def to_each_bundle(
    request: Request,
    services: Services,
    bundles: Iterable[Bundle],
    work: Callable[[Bundle], Awaitable[None]],
    rest: str,
    *,
    acquiring: bool,
    method: str | None = None,
) -> None:
    """Do ``work`` to each of a namespace's bundles.

    Other owners are asked by the same request (or ``method``) about the bundle, whose path ends
    with ``rest``. A bundle without an owner is skipped, or acquired first (``acquiring``). A
    request with authority comes from another broker, and is not passed on, so that it cannot go in
    circles: it raises ``NotOwned``.
    """

    async def to_bundle(bundle: Bundle) -> None:
        ownership, has_authority = services.ownership, flag(request, "authoritative")
        owner: Owner | None
        if acquiring:
            # Acquires it, or has the broker acquire it that it is placed on.
            owner = await ownership.owner_of(bundle, authoritative=has_authority)
        else:
            owner = await ownership.present_owner_of(bundle)
        # Nothing is loaded in it, so there is nothing to do.
        if owner is None:
            return
        if owner.is_self:
            await work(bundle)
        elif has_authority:
            # The sender thought that this broker owns it: the sender has to find the owner anew.
            # 503: the sender's client retries, and the sender reads the owner again.
            raise NotOwned(str(bundle))
        else:
            # ``ask`` tells the owner to serve it and not to pass it on.
            path = f"/admin/v2/namespaces/{bundle.namespace}/{bundle.name}/{rest}"
            await ask(services.calls, request, owner, path, method=method)

    await to_each(to_bundle, bundles)


async def topic_here(services: Services, topic: TopicName, *, create: bool = False) -> Topic:
    """A persistent topic of this broker, loaded; with ``create`` created if its namespace allows.

    Raises ``TopicNotFound``, also for every non-persistent topic.
    """
    if not topic.is_persistent:
        raise TopicNotFound(str(topic))
    if create:
        policies = await services.namespaces.policies(topic.namespace)
        # As for a client that uses the topic.
        create = auto_creation(services.auto_creation, policies).is_allowed
    return await services.broker.persistent_topic(topic, create=create)


async def refuse_partitioned(services: Services, topic: TopicName, reason: str) -> None:
    """Raise ``RestError`` 405 where ``topic`` is a partitioned topic as a whole."""
    await policies_here(services, topic)
    # A non-persistent topic is refused later: it has no log.
    if topic.is_persistent and await services.partitioned_topics.partitions(topic):
        raise RestError(405, reason)
