"""A request about a topic: bringing it to the broker that serves it, saying what is not there."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from fastapi import Request

from magnetar_broker.admin.errors import RestError, ServedElsewhere
from magnetar_broker.admin.facade import Services
from magnetar_broker.metadata.errors import PartitionedTopicNotFound
from magnetar_protocol.pulsar.topic_names import TopicName
from magnetar_protocol.records.partitioned_topics import PartitionedTopicMetadata


async def serve_here(request: Request, services: Services, topic: TopicName) -> None:
    """Return if this broker owns the topic's bundle, after acquiring it if nobody did.

    Raises ``ServedElsewhere`` with this request's URL at the owner, ``NamespaceNotFound``.
    """
    owner = await services.ownership.owner(topic)
    if owner.is_self:
        return
    query = [pair for pair in parse_qsl(request.url.query) if pair[0] != "authoritative"]
    query.append(("authoritative", "true"))
    # The routed path is the raw one: the owner gets the name as it was sent.
    url = owner.http_url or owner.http_url_tls
    raise ServedElsewhere(f"{url}{request.scope['path']}?{urlencode(query)}")


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
