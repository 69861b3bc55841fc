"""``…/{namespace}/clearBacklog`` and ``unsubscribe``: changes of the subscriptions of all
persistent topics of a namespace, or of one of its bundles.

Topics without a subscription of that name are skipped. Upstream changes only topics that are
loaded; here the others are loaded for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.owner_routes import to_each, to_each_bundle
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.routes.namespace.namespaces import bundle_in
from geminga_broker.admin.routes.topic.topics import require_namespace
from geminga_broker.admin.services import Services
from geminga_broker.errors import SubscriptionNotFound, TopicNotFound
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_server.authorization import Action
from geminga_server.rest.access import on_namespace
from geminga_server.rest.answers import no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import NamespaceArg, path_value

router = APIRouter(prefix="/admin/v2/namespaces/{tenant}/{namespace}")

ADMINISTER = [on_namespace(Action.ADMINISTER)]

Work = Callable[[Topic], Awaitable[None]]

_BEHIND_NAMESPACE = 6  # segments of /admin/v2/namespaces/{tenant}/{namespace}/...


@router.post("/clearBacklog", dependencies=ADMINISTER)
@router.post("/{bundle}/clearBacklog", dependencies=ADMINISTER)
async def clear_backlog(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Skip all messages of every subscription."""

    async def clear(topic: Topic) -> None:
        # A copy: a subscription may be created or deleted while another one is moved.
        for subscription in list(topic.part(PersistentSubscriptions).subscriptions.values()):
            await subscription.skipping.everything()

    return await _of_every_topic(request, services, namespace, clear)


@router.post("/clearBacklog/{subscription}", dependencies=ADMINISTER)
@router.post("/{bundle}/clearBacklog/{subscription}", dependencies=ADMINISTER)
async def clear_backlog_of_subscription(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Skip all messages of the subscriptions of that name."""

    async def clear(_: Topic, subscription: Subscription) -> None:
        await subscription.skipping.everything()

    return await _of_every_topic(request, services, namespace, _where_named(request, clear))


@router.post("/unsubscribe/{subscription}", dependencies=ADMINISTER)
@router.post("/{bundle}/unsubscribe/{subscription}", dependencies=ADMINISTER)
async def unsubscribe(request: Request, namespace: NamespaceArg, services: ServicesArg) -> Response:
    """Delete the subscriptions of that name; one that has consumers is refused."""

    async def forget(topic: Topic, subscription: Subscription) -> None:
        # As upstream; a call for one topic can force it. Checked for each topic: those before it in
        # the order have lost their subscription by then.
        if subscription.consumers:
            raise RestError(412, "Subscription has active connected consumers")
        await topic.part(PersistentSubscriptions).delete_subscription(subscription)

    return await _of_every_topic(request, services, namespace, _where_named(request, forget))


def _where_named(request: Request, work: Callable[[Topic, Subscription], Awaitable[None]]) -> Work:
    """``work`` on the subscription named in the path, for those topics that have it."""
    name = path_value(request, "subscription")

    async def on_topic(topic: Topic) -> None:
        try:
            # Topics without it are no error: the client asks for those that have it.
            subscription = topic.part(PersistentSubscriptions).named(name)
        except SubscriptionNotFound:
            return
        await work(topic, subscription)

    return on_topic


async def _of_every_topic(
    request: Request, services: Services, namespace: NamespaceName, work: Work
) -> Response:
    """Do ``work`` to the persistent topics of the namespace, or of the bundle in the path."""
    # First: an unknown namespace would look like one without topics.
    await require_namespace(services, namespace)
    ring = await services.ownership.rings.ring_of(namespace)
    # The bundle in the path; None: all bundles of the namespace.
    only = None
    if "bundle" in request.path_params:
        only = bundle_in(ring, f"{namespace}/{path_value(request, 'bundle')}")
    # Each owner is asked once for all topics of its bundle.
    topics: dict[Bundle, list[TopicName]] = {}
    # From ZooKeeper: topics that are not loaded have backlogs, too.
    for topic in await services.persistent_topics.names(namespace):
        bundle = ring.bundle_of(topic.hash)
        if only in (None, bundle):
            topics.setdefault(bundle, []).append(topic)

    async def on_topic(name: TopicName) -> None:
        # Loads the topic, as its cursors have to be moved.
        with suppress(TopicNotFound):  # deleted meanwhile
            await work(await services.broker.persistent_topic(name))

    async def on_bundle(bundle: Bundle) -> None:
        # The owner works on a few topics at a time, and brokers on their bundles side by side.
        await to_each(on_topic, topics[bundle])

    # The path is …/{namespace}/[{bundle}/]clearBacklog[/{subscription}]. Other owners are asked for
    # one bundle each: by the same path, with the bundle in it.
    rest = "/".join(request.scope["path"].split("/")[_BEHIND_NAMESPACE + (only is not None) :])
    # Bundles without topics are skipped. One without an owner is acquired, as its topics have to be
    # loaded.
    await to_each_bundle(request, services, topics, on_bundle, rest, acquiring=True)
    return no_content()
