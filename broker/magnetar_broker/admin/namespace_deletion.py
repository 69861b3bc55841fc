"""A namespace is deleted with all of its topics, whoever uses them.

Clients whose topic goes come back at once and would make it again. So the namespace is marked as
deleted in between: from then on nobody finds it, and what came back before that goes too. Where it
cannot be finished, the mark is taken away, and the deletion may be asked for again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from magnetar_broker.admin.facade import Services
from magnetar_broker.admin.routes.topics import topics_of
from magnetar_broker.admin.serving import serve_partition
from magnetar_broker.errors import TopicFenced, TopicNotFound
from magnetar_broker.metadata.errors import NamespaceNotFound, PartitionedTopicNotFound
from magnetar_protocol.pulsar.topic_names import NamespaceName, TopicName

DOMAINS = ("persistent", "non-persistent")

# Topics deleted side by side: each takes its ledgers' deletions, one after the other.
DELETE_WIDTH = 16


async def delete_with_topics(services: Services, namespace: NamespaceName) -> None:
    """Delete ``namespace`` and its topics by force.

    Raises ``NamespaceNotFound``; ``RestError`` 503 where another broker serves some of the topics,
    and then nothing was deleted.
    """
    if (await services.namespaces.policies(namespace)).deleted:  # a deletion was cut short
        await _mark(services, namespace, deleted=False)
    for topic in await _topics(services, namespace):
        await serve_partition(services, topic)
    await _delete_topics(services, namespace)
    await _mark(services, namespace, deleted=True)
    try:
        await _delete_topics(services, namespace)
        await services.ownership.unload_namespace(namespace)
        await _forget_partitioned(services, namespace)
        await services.namespaces.delete(namespace)
    except BaseException:
        with suppress(NamespaceNotFound):
            await _mark(services, namespace, deleted=False)
        raise


async def _mark(services: Services, namespace: NamespaceName, *, deleted: bool) -> None:
    await services.namespaces.update(namespace, lambda policies: replace(policies, deleted=deleted))


async def _topics(services: Services, namespace: NamespaceName) -> list[TopicName]:
    lists = [await topics_of(services, namespace, domain) for domain in DOMAINS]
    return [topic for topics in lists for topic in topics]


async def _delete_topics(services: Services, namespace: NamespaceName) -> None:
    """Delete all topics there are now; one that is gone already is no fault."""
    width = asyncio.Semaphore(DELETE_WIDTH)

    async def delete(topic: TopicName) -> None:
        async with width:
            # Fenced: somebody else closes or deletes it just now.
            with suppress(TopicNotFound, TopicFenced):
                await services.broker.delete_topic(topic, force=True)

    topics = await _topics(services, namespace)
    results = await asyncio.gather(*map(delete, topics), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _forget_partitioned(services: Services, namespace: NamespaceName) -> None:
    for domain in DOMAINS:
        for topic in await services.partitioned_topics.names(namespace, domain):
            with suppress(PartitionedTopicNotFound):
                await services.partitioned_topics.delete(topic)
