"""A namespace is deleted with all of its topics, whoever uses them.

Clients whose topic goes come back at once and would make it again. So the namespace is marked as
deleted in between: from then on nobody finds it. A topic that was just being made then is waited
for, and deleted. Where one is left all the same the mark is taken away, and all of it begins again;
so it does, when it is asked for again, where it could not be finished.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from fastapi import Request

from geminga_broker.admin.facade import Services
from geminga_broker.admin.peers import ask
from geminga_broker.admin.routes.topic.topics import topics_of
from geminga_broker.admin.serving import to_each, to_each_bundle
from geminga_broker.errors import ServiceNotReady, TopicFenced, TopicNotFound
from geminga_broker.ownership.bundles import Bundle, BundleRing
from geminga_cluster.errors import NamespaceNotFound, PartitionedTopicNotFound
from geminga_cluster.system_topics import is_system_topic
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_runtime.coordination import NodeNotEmpty
from geminga_server.rest.errors import RestError

DOMAINS = ("persistent", "non-persistent")

# Clients come back ever more slowly.
ROUNDS_MAX = 8

_FORCE = {"force": "true"}

Chosen = Callable[[TopicName], bool]
"""Which topics go with their namespace; the others keep it."""


async def delete_without_topics(
    request: Request, services: Services, namespace: NamespaceName
) -> None:
    """Delete ``namespace`` if there are no topics in it, but for Pulsar's own.

    Raises ``NamespaceNotFound``; ``RestError`` 409 where users' topics are left.
    """
    await unmark(services, namespace)
    await _delete_topics(request, services, namespace, is_system_topic)
    if not await _delete_marked(request, services, namespace, is_system_topic):
        raise RestError(409, "Cannot delete non empty namespace")


async def delete_with_topics(
    request: Request, services: Services, namespace: NamespaceName
) -> None:
    """Delete ``namespace`` and its topics by force.

    Raises ``NamespaceNotFound``; ``RestError`` 409 where topics are made all the time.
    """
    await unmark(services, namespace)
    for _ in range(ROUNDS_MAX):
        await _delete_topics(request, services, namespace, _all)
        if await _delete_marked(request, services, namespace, _all):
            return
    raise RestError(409, "Topics of the namespace are made as fast as they are deleted")


def _all(_: TopicName) -> bool:
    return True


async def unmark(services: Services, namespace: NamespaceName) -> None:
    """Have a namespace found again whose deletion was cut short."""
    if (await services.namespaces.policies(namespace)).deleted:
        await _mark(services, namespace, deleted=False)


async def _delete_marked(
    request: Request, services: Services, namespace: NamespaceName, chosen: Chosen
) -> bool:
    """Delete a namespace that nobody finds any more; False where topics are left in it."""
    ring = await services.ownership.ring_of(namespace)
    # Other brokers give its bundles up and wait for what they are loading; once it is marked, none
    # acquires them again.
    await to_each_bundle(
        request, services, ring.bundles, _nothing, "unload", acquiring=False, method="PUT"
    )
    await _mark(services, namespace, deleted=True)
    is_gone = False
    try:
        await services.broker.topics_settled(namespace)
        topics = await _topics(services, ring)
        left = [topic for topic in filter(chosen, topics) if await _is_free(services, ring, topic)]
        await _delete_each(services.broker.delete_doomed_topic, left)
        await services.broker.topics_settled(namespace)
        if not await _topics(services, ring):
            await services.ownership.unload_namespace(namespace)
            await _forget_partitioned(services, namespace)
            await services.schemas.delete_namespace(namespace)
            await services.namespaces.delete(namespace)
            is_gone = True
    except NodeNotEmpty:  # a topic that was being made is stored just now
        return False
    finally:
        if not is_gone:
            with suppress(NamespaceNotFound):
                await _mark(services, namespace, deleted=False)
    return is_gone


async def _mark(services: Services, namespace: NamespaceName, *, deleted: bool) -> None:
    await services.namespaces.update(namespace, lambda policies: replace(policies, deleted=deleted))


async def _nothing(_: Bundle) -> None:
    """This broker's own bundles it keeps, until their topics are deleted."""


async def _is_free(services: Services, ring: BundleRing, topic: TopicName) -> bool:
    """Whether no other broker serves the topic."""
    owner = await services.ownership.present_owner_of(ring.bundle_of(topic.hash))
    return owner is None or owner.is_self


async def _topics(services: Services, ring: BundleRing) -> list[TopicName]:
    lists = [await topics_of(services, ring, domain) for domain in DOMAINS]
    return [topic for topics in lists for topic in topics]


async def _delete_topics(
    request: Request, services: Services, namespace: NamespaceName, chosen: Chosen
) -> None:
    """Delete the chosen topics there are now, wherever; one that is gone is no fault."""

    async def delete(topic: TopicName) -> None:
        owner = await services.ownership.owner(topic)
        if owner.is_self:
            await services.broker.delete_topic(topic, force=True)
            return
        path = f"/admin/v2/{topic.url_path}"
        try:
            await ask(
                services.calls, request, owner, path, method="DELETE", query={"force": "true"}
            )
        except RestError as error:  # as below
            if error.status not in (404, 503):
                raise

    ring = await services.ownership.ring_of(namespace)
    topics = [topic for topic in await _topics(services, ring) if chosen(topic)]
    # Brokers write to their own topics when one of the others goes.
    for is_own in (False, True):
        await _delete_each(delete, [each for each in topics if is_system_topic(each) is is_own])


async def _delete_each(
    delete: Callable[[TopicName], Awaitable[None]], topics: Iterable[TopicName]
) -> None:
    async def delete_one(topic: TopicName) -> None:
        # Fenced: somebody else closes or deletes it just now. Not ready: its bundle just went.
        with suppress(TopicNotFound, TopicFenced, ServiceNotReady):
            await delete(topic)

    await to_each(delete_one, topics)


async def _forget_partitioned(services: Services, namespace: NamespaceName) -> None:
    for domain in DOMAINS:
        for topic in await services.partitioned_topics.names(namespace, domain):
            with suppress(PartitionedTopicNotFound):
                await services.partitioned_topics.delete(topic)
