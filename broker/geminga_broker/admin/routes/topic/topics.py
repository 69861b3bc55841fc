"""``/admin/v2/persistent`` and ``/non-persistent``: list, create and delete topics.

Calls about partitioned topics as a whole are in ``partitions``.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, Request
from starlette.convertors import register_url_convertor
from starlette.responses import Response

from geminga_broker.admin.owner_routes import policies_here, serve_here
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.services import Services
from geminga_broker.errors import TopicExists, TopicNotFound
from geminga_broker.ownership.assignment.bundles import Bundle, BundleRing, parse_boundary
from geminga_cluster.errors import NamespaceNotFound
from geminga_protocol.pulsar.system_topics import is_system_topic
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_server.authorization import Action
from geminga_server.rest.access import on_namespace, on_topic
from geminga_server.rest.answers import Json, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import (
    NamespaceArg,
    TopicArg,
    Word,
    flag,
    path_value,
    text_map_body,
)


class _BundleName(Word):
    regex = "0x[0-9a-fA-F]{8}_0x[0-9a-fA-F]{8}"


register_url_convertor("bundle", _BundleName())

router = APIRouter(prefix="/admin/v2/{domain:domain}/{tenant}/{namespace}")


@router.get("", dependencies=[on_namespace(Action.READ)])
async def list_topics(request: Request, namespace: NamespaceArg, services: ServicesArg) -> Response:
    """The namespace's topics, each partition by itself; with ``bundle`` those of one bundle."""
    await require_namespace(services, namespace)
    # The owner of each bundle knows its non-persistent topics.
    ring = await services.ownership.rings.ring_of(namespace)
    topics = await topics_of(services, ring, path_value(request, "domain"))
    bundle_name = request.query_params.get("bundle")
    if bundle_name:
        topics = [topic for topic in topics if ring.bundle_of(topic.hash).name == bundle_name]
    return names_answer(request, topics)


@router.get("/partitioned", dependencies=[on_namespace(Action.READ)])
async def list_partitioned_topics(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """The namespace's partitioned topics, without their partitions."""
    await require_namespace(services, namespace)
    domain = path_value(request, "domain")
    return names_answer(request, await services.partitioned_topics.names(namespace, domain))


@router.get("/{bundle:bundle}", dependencies=[on_namespace(Action.READ)])
async def list_topics_of_bundle(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """The non-persistent topics of a bundle that this broker has loaded, for other brokers."""
    await require_namespace(services, namespace)
    # The name of a bundle is made of its boundaries.
    lower, _, upper = path_value(request, "bundle").partition("_")
    # Only the hashes are compared: a namespace that is being deleted has no ring any more.
    hashes = Bundle(namespace, parse_boundary(lower), parse_boundary(upper))
    topics = services.broker.topics.non_persistent_in(namespace)
    return names_answer(request, [topic for topic in topics if hashes.covers(topic.hash)])


@router.put("/{topic}", dependencies=[on_topic(Action.ADMINISTER)])
async def create_topic(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Create a topic that is not partitioned, or a missing partition."""
    properties = await text_map_body(request)
    # Raises for a namespace that does not exist, before a bundle of it is looked up.
    await policies_here(services, topic)
    await serve_here(request, services, topic)
    # A name of a partition is for partitions only: a topic of that name could not be told apart.
    if topic.partition_index >= 0:
        partitions = await services.partitioned_topics.partitions(topic.base)
        refused = f'Can\'t create topic {topic.local} with "-partition-" followed by '
        if partitions == 0:
            raise RestError(
                412,
                f"{refused}numeric value if there isn't a partitioned topic {topic.base.local} "
                "created.",
            )
        if topic.partition_index >= partitions:
            raise RestError(
                412,
                f"{refused}a number smaller than number of partition of partitioned topic "
                f"{topic.base.local}",
            )
    if await services.partitioned_topics.partitions(topic):
        # Checked before the topic is created: both would then have the same name.
        raise TopicExists(str(topic))
    await services.broker.topics.create(topic, properties)
    return no_content()


@router.delete("/{topic}", dependencies=[on_topic(Action.ADMINISTER)])
async def delete_topic(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Delete a topic, or one partition; ``force`` disconnects its clients first."""
    try:
        await serve_here(request, services, topic)
        if await services.partitioned_topics.partitions(topic):
            raise RestError(
                409,
                f"{topic} is a partitioned topic, instead of calling delete topic, "
                "please call delete-partitioned-topic.",
            )
        await services.broker.topics.delete(topic, force=flag(request, "force"))
    except (TopicNotFound, NamespaceNotFound):
        # A non-persistent topic that is not loaded does not exist: it counts as deleted.
        if topic.is_persistent:
            raise TopicNotFound(str(topic)) from None
    return no_content()


async def require_namespace(services: Services, namespace: NamespaceName) -> None:
    """Raise ``RestError`` 404, with the text of the calls about namespaces."""
    # An empty list would say that the namespace exists.
    if not await services.namespaces.exists(namespace):
        raise RestError(404, "Namespace does not exist")


async def topics_of(services: Services, ring: BundleRing, domain: str) -> list[TopicName]:
    """The topics of the ring's namespace in that domain, each partition by itself."""
    if domain == "persistent":
        # ZooKeeper knows all of them, loaded or not.
        return await services.persistent_topics.names(ring.bundles[0].namespace)
    # Raises where an owner does not answer: a list without its topics would look like deletions.
    return await services.non_persistent_topics.of(ring)


def names_answer(request: Request, topics: Iterable[TopicName]) -> Response:
    """Answer full names; system topics only with ``includeSystemTopic``."""
    with_system = flag(request, "includeSystemTopic")
    return Json([str(topic) for topic in topics if with_system or not is_system_topic(topic)])
