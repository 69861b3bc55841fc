"""Deletes a namespace together with its topics, even while they are used.

Clients whose topic is deleted reconnect at once and would create it again. So the deletion takes
rounds. In each one:

1. All topics are deleted, on whichever broker.
2. The other brokers unload its bundles, and it is marked as deleted: no broker acquires one now.
3. Topics that were being created at that moment are waited for, and deleted.
4. If no topic is left, the records go, the namespace's last. Otherwise the mark is taken away, and
   the next round begins.

A deletion that was interrupted leaves the mark; the next request takes it away and begins again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from fastapi import Request

from geminga_broker.admin.owner_routes import to_each, to_each_bundle
from geminga_broker.admin.peers import ask
from geminga_broker.admin.routes.topic.topics import topics_of
from geminga_broker.admin.services import Services
from geminga_broker.errors import ServiceNotReady, TopicFenced, TopicNotFound
from geminga_broker.ownership.assignment.bundles import Bundle, BundleRing
from geminga_cluster.errors import NamespaceNotFound, PartitionedTopicNotFound
from geminga_protocol.pulsar.system_topics import is_system_topic
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_runtime.coordination import NodeNotEmpty
from geminga_server.rest.errors import RestError

# The two kinds of topics, as names and paths have them.
DOMAINS = ("persistent", "non-persistent")

# Clients reconnect ever more slowly, so that a round without a new topic comes soon. Without a
# bound, a client that creates topics in a loop would hold the request for ever.
ROUNDS_MAX = 8


async def delete_without_topics(
    request: Request, services: Services, namespace: NamespaceName
) -> None:
    """Delete ``namespace`` if there are only system topics in it.

    Raises ``NamespaceNotFound``; ``RestError`` 409 where users' topics are left.
    """
    await unmark(services, namespace)
    await _delete_topics(request, services, namespace, only_system=True)
    # Users' topics that were created meanwhile are found once the namespace is marked.
    if not await _delete_marked(request, services, namespace, only_system=True):
        raise RestError(409, "Cannot delete non empty namespace")


async def delete_with_topics(
    request: Request, services: Services, namespace: NamespaceName
) -> None:
    """Delete ``namespace`` and its topics by force.

    Raises ``NamespaceNotFound``; ``RestError`` 409 where topics are created all the time.
    """
    await unmark(services, namespace)
    # The first round disconnects all clients; later ones find what has reconnected.
    for _ in range(ROUNDS_MAX):
        await _delete_topics(request, services, namespace, only_system=False)
        if await _delete_marked(request, services, namespace, only_system=False):
            return
    raise RestError(409, "Topics of the namespace are made as fast as they are deleted")


async def unmark(services: Services, namespace: NamespaceName) -> None:
    """Take the mark away from a namespace whose deletion was interrupted."""
    if (await services.namespaces.policies(namespace)).deleted:
        await _mark(services, namespace, deleted=False)


async def _delete_marked(
    request: Request, services: Services, namespace: NamespaceName, *, only_system: bool
) -> bool:
    """Mark the namespace as deleted, then delete it; False where topics are left in it. With
    ``only_system``, users' topics are never deleted: they keep the namespace."""

    async def keep(_: Bundle) -> None:
        """This broker keeps its own bundles until their topics are deleted."""

    ring = await services.ownership.rings.ring_of(namespace)
    # The other brokers unload its bundles, which waits for topics that they are loading. Once the
    # namespace is marked, no broker acquires a bundle of it again. Others first, this broker last:
    # while it deletes, it needs its own bundles.
    await to_each_bundle(
        request, services, ring.bundles, keep, "unload", acquiring=False, method="PUT"
    )
    # From here to the ``finally`` lookups in the namespace fail; clients retry.
    await _mark(services, namespace, deleted=True)
    is_gone = False
    try:
        # Topics that were being loaded when the mark came: they are open or given up when this
        # returns.
        await services.broker.topics.settled(lambda name: name.namespace == namespace)
        # Topics that were created between the deletion and the mark. A topic of another broker's
        # bundle is left alone: it is found by the next look, and the round fails.
        left: list[TopicName] = []
        for topic in await _topics(services, ring, only_system=only_system):
            # Another broker may have acquired the bundle before the mark, and serves the topic.
            owner = await services.ownership.present_owner_of(ring.bundle_of(topic.hash))
            if owner is None or owner.is_self:
                left.append(topic)
        # Lookups do not find the bundles of a marked namespace, so these deletions ask for none.
        await _delete_each(services.broker.topics.delete_doomed, left)
        await services.broker.topics.settled(lambda name: name.namespace == namespace)
        # With all kinds: a user's topic keeps the namespace even where only system topics were
        # deleted.
        if not await _topics(services, ring, only_system=False):
            # No topic is left: the bundles of this broker, then the records below the namespace,
            # then its own. Bundles before records: a broker that owns one would go on serving what
            # no record names.
            await services.ownership.unload_namespace(namespace)
            for domain in DOMAINS:
                for topic in await services.partitioned_topics.names(namespace, domain):
                    # Before the policies: a partitioned topic without its namespace could not be
                    # deleted any more.
                    with suppress(PartitionedTopicNotFound):
                        await services.partitioned_topics.delete(topic)
            await services.schemas.delete_namespace(namespace)
            # Last: where something before it fails, the request can be repeated.
            await services.namespaces.delete(namespace)
            is_gone = True
    except NodeNotEmpty:  # a topic that was being created was stored just now
        return False
    finally:
        # Not where the namespace is gone: its record went with it.
        if not is_gone:
            # Also where the request was cancelled or failed: the namespace is served again.
            with suppress(NamespaceNotFound):
                await _mark(services, namespace, deleted=False)
    return is_gone


async def _mark(services: Services, namespace: NamespaceName, *, deleted: bool) -> None:
    # A member of the policies, which upstream's brokers know, too. By compare-and-set, as any
    # change of policies.
    await services.namespaces.update(namespace, lambda policies: replace(policies, deleted=deleted))


async def _topics(services: Services, ring: BundleRing, *, only_system: bool) -> list[TopicName]:
    lists = [await topics_of(services, ring, domain) for domain in DOMAINS]
    every = [topic for topics in lists for topic in topics]
    return [topic for topic in every if is_system_topic(topic)] if only_system else every


async def _delete_topics(
    request: Request, services: Services, namespace: NamespaceName, *, only_system: bool
) -> None:
    """Delete the topics that there are now, or the system topics alone, on whichever broker. A
    topic that is deleted meanwhile is no error."""

    async def delete(topic: TopicName) -> None:
        # Acquires the bundle if it has no owner: deleting a topic takes loading it.
        owner = await services.ownership.owner(topic)
        if owner.is_self:
            await services.broker.topics.delete(topic, force=True)
            return
        # The owner deletes it by force, as this request does.
        path = f"/admin/v2/{topic.url_path}"
        try:
            await ask(
                services.calls, request, owner, path, method="DELETE", query={"force": "true"}
            )
        except RestError as error:
            # The same as ``_delete_each`` ignores: not found, fenced, not ready.
            if error.status not in (404, 503):
                raise

    # Read for each round, as the bundles may have been split.
    ring = await services.ownership.rings.ring_of(namespace)
    topics = await _topics(services, ring, only_system=only_system)
    # System topics last: brokers write to them when another topic is deleted. All of the one kind
    # have been deleted before the other kind begins.
    for is_system in (False, True):
        await _delete_each(delete, [each for each in topics if is_system_topic(each) is is_system])


async def _delete_each(
    delete: Callable[[TopicName], Awaitable[None]], topics: Iterable[TopicName]
) -> None:
    async def delete_one(topic: TopicName) -> None:
        # Fenced: it is being closed or deleted. Not ready: its bundle was just unloaded.
        with suppress(TopicNotFound, TopicFenced, ServiceNotReady):
            await delete(topic)

    # An error that remains is raised when all others are done.
    await to_each(delete_one, topics)
