"""``…/{namespace}/clearBacklog`` and ``unsubscribe``: what is done to the subscriptions of all
persistent topics of a namespace, or of one of its bundles.

Topics without a subscription of that name are passed over. Upstream reaches only topics that are
loaded just now; here those that are not are loaded for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.facade import Services
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.routes.namespaces import bundle_in
from geminga_broker.admin.routes.topics import require_namespace, topics_of
from geminga_broker.admin.serving import serve_partition, to_each
from geminga_broker.errors import SubscriptionNotFound, TopicNotFound
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.consuming.stored_subscriptions import StoredSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_server.authorization import Action
from geminga_server.rest.access import on_namespace
from geminga_server.rest.answers import no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import NamespaceArg, path_value

router = APIRouter(prefix="/admin/v2/namespaces/{tenant}/{namespace}")

ADMINISTER = [on_namespace(Action.ADMINISTER)]

Work = Callable[[Topic], Awaitable[None]]


@router.post("/clearBacklog", dependencies=ADMINISTER)
@router.post("/{bundle}/clearBacklog", dependencies=ADMINISTER)
async def clear_backlog(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Have every subscription pass all there is now."""

    async def clear(topic: Topic) -> None:
        for subscription in list(topic.part(StoredSubscriptions).subscriptions.values()):
            await subscription.skipping.everything()

    return await _of_every_topic(request, services, namespace, clear)


@router.post("/clearBacklog/{subscription}", dependencies=ADMINISTER)
@router.post("/{bundle}/clearBacklog/{subscription}", dependencies=ADMINISTER)
async def clear_backlog_of_subscription(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Have the subscriptions of that name pass all there is now."""

    async def clear(_: Topic, subscription: Subscription) -> None:
        await subscription.skipping.everything()

    return await _of_every_topic(request, services, namespace, _where_named(request, clear))


@router.post("/unsubscribe/{subscription}", dependencies=ADMINISTER)
@router.post("/{bundle}/unsubscribe/{subscription}", dependencies=ADMINISTER)
async def unsubscribe(request: Request, namespace: NamespaceArg, services: ServicesArg) -> Response:
    """Forget the subscriptions of that name; none that has consumers."""

    async def forget(topic: Topic, subscription: Subscription) -> None:
        if subscription.consumers:
            raise RestError(412, "Subscription has active connected consumers")
        await topic.part(StoredSubscriptions).delete_subscription(subscription)

    return await _of_every_topic(request, services, namespace, _where_named(request, forget))


def _where_named(request: Request, work: Callable[[Topic, Subscription], Awaitable[None]]) -> Work:
    """``work`` on the subscription in the path, where a topic has it."""
    name = path_value(request, "subscription")

    async def on_topic(topic: Topic) -> None:
        try:
            subscription = topic.part(StoredSubscriptions).named(name)
        except SubscriptionNotFound:
            return
        await work(topic, subscription)

    return on_topic


async def _of_every_topic(
    request: Request, services: Services, namespace: NamespaceName, work: Work
) -> Response:
    """Raises ``RestError`` 503 where another broker serves one: then nothing was done."""
    topics = await _topics(request, services, namespace)
    for topic in topics:
        await serve_partition(services, topic)

    async def on_topic(name: TopicName) -> None:
        with suppress(TopicNotFound):  # deleted meanwhile
            await work(await services.broker.persistent_topic(name))

    await to_each(on_topic, topics)
    return no_content()


async def _topics(
    request: Request, services: Services, namespace: NamespaceName
) -> list[TopicName]:
    """The persistent topics of the namespace, or of the bundle in the path."""
    await require_namespace(services, namespace)
    topics = await topics_of(services, namespace, "persistent")
    if "bundle" not in request.path_params:
        return topics
    ring = await services.ownership.ring_of(namespace)
    bundle = bundle_in(ring, f"{namespace}/{path_value(request, 'bundle')}")
    return [topic for topic in topics if ring.bundle_of(topic.hash) == bundle]
