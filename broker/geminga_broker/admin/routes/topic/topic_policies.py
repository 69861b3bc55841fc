"""``…/{topic}/replication``: the policies of a single topic, which count before its namespace's.

They are stored in the namespace's topic ``__change_events`` (``geminga_broker.topic_policies``).
Only the broker that owns a topic changes them, so that no change overwrites another; a partitioned
topic has the same policies for all partitions, and the owner of the first one changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.owner_routes import policies_here, serve_here
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.routes.namespace.replication import (
    check_clusters,
    clusters_body,
    clusters_of,
    other_clusters,
    refusals_of_remotes,
)
from geminga_broker.admin.services import Services
from geminga_broker.errors import TopicNotFound
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_server.authorization import Action
from geminga_server.rest.access import on_topic
from geminga_server.rest.answers import Json, empty, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import TopicArg, flag

router = APIRouter(prefix="/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}")

NOT_OF_PARTITIONS = "Not allowed to set/get topic policy for a partition"
NOT_LOCAL = "Can not remove local cluster from the topic-level replication clusters policy"


@router.get("/replication", dependencies=[on_topic(Action.READ)])
async def get_topic_replication_clusters(
    request: Request, topic: TopicArg, services: ServicesArg
) -> Response:
    """The clusters of the topic's own policies, nothing where they are not set; with ``applied``
    those that count."""
    # The owner answers, as it is the one that changes them.
    await bring_to_owner(request, services, topic)
    clusters: Sequence[str] | None
    if flag(request, "applied"):
        clusters = await clusters_of(services, topic)
    else:
        clusters = (await services.topic_policies.local(topic)).replication_clusters
    return empty() if clusters is None else Json(sorted(set(clusters)))


@router.post("/replication", dependencies=[on_topic(Action.ADMINISTER)])
async def set_topic_replication_clusters(
    request: Request, topic: TopicArg, services: ServicesArg
) -> Response:
    """Replicate this topic to these clusters from now on, and to no other. This cluster has to be
    among them; the others need not replicate the topic back. A partitioned topic is created there
    first; the request fails where another topic has its name."""
    await bring_to_owner(request, services, topic)
    # Each once, in the order of the request.
    clusters = tuple(dict.fromkeys(await clusters_body(request)))
    # A topic that left this cluster could only be changed elsewhere.
    if services.cluster not in clusters:
        raise RestError(412, NOT_LOCAL)
    # A topic may not go where its namespace may not.
    await check_clusters(services, topic.namespace, clusters)
    # Before the policies are changed: where another cluster refuses, nothing has changed here.
    if partitions := await services.partitioned_topics.partitions(topic):
        others = other_clusters(services, clusters)
        with refusals_of_remotes():
            await services.remote_topics.create_in_each(topic, partitions, others)
    await services.topic_policies.change(
        topic, lambda policies: replace(policies, replication_clusters=clusters)
    )
    return no_content()


@router.delete("/replication", dependencies=[on_topic(Action.ADMINISTER)])
async def remove_topic_replication_clusters(
    request: Request, topic: TopicArg, services: ServicesArg
) -> Response:
    """Remove the topic's own policy: it is replicated as its namespace is."""
    await bring_to_owner(request, services, topic)
    await services.topic_policies.change(
        topic, lambda policies: replace(policies, replication_clusters=None)
    )
    return no_content()


async def bring_to_owner(request: Request, services: Services, topic: TopicName) -> None:
    """Return if this broker is the one to read and change the policies of ``topic``: its owner, or
    that of the first partition.

    Raises ``RestError`` 412 for a partition, ``TopicNotFound``, ``NamespaceNotFound``,
    ``ServedElsewhere``.
    """
    # The whole has them; a partition follows it.
    if topic.partition_index >= 0:
        raise RestError(412, NOT_OF_PARTITIONS)
    await policies_here(services, topic)
    if await services.partitioned_topics.partitions(topic):
        # Any partition would do, as long as all brokers take the same.
        await serve_here(request, services, topic.partition(0))
        return
    # The topic has to exist: policies of others would never be removed. Asked before the bundle is
    # acquired: a topic that does not exist needs no owner.
    found = services.persistent_topics if topic.is_persistent else services.non_persistent_topics
    if not await found.exists(topic):
        raise TopicNotFound(str(topic))
    await serve_here(request, services, topic)
