"""``…/{topic}/subscriptions`` and ``subscription/{name}``: create, move and delete subscriptions.

Calls about single messages are in ``messages``. For a partitioned topic most calls change the
subscription of every partition; as upstream, those that name a position or count messages are
refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.owner_routes import (
    refuse_partitioned,
    to_each_partition,
    to_one_topic,
    topic_here,
)
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.reset_position import ResetPosition
from geminga_broker.admin.services import Services
from geminga_broker.admin.topics.stats import INTERNAL_PROPERTY
from geminga_broker.errors import NotAllowed, SubscriptionNotFound
from geminga_broker.managed_ledger.log_browser import entry_at
from geminga_broker.managed_ledger.positions import LATEST
from geminga_broker.managed_ledger.reading.payloads import batch_size
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_server.authorization import Action
from geminga_server.rest.access import on_topic
from geminga_server.rest.answers import Json, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import (
    TopicArg,
    flag,
    integer_in_path,
    object_body,
    path_value,
    text_map_body,
)

router = APIRouter(prefix="/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}")

READ = [on_topic(Action.READ)]
ADMINISTER = [on_topic(Action.ADMINISTER)]

Work = Callable[[Topic, Subscription], Awaitable[object]]

# Upstream's texts, byte for byte.
NOTHING_EXPIRED = (
    "Expire message by {what} not issued on topic {topic} for subscription {subscription} due to "
    "ongoing message expiration not finished or subscription almost catch  up."
)
EXPIRED_IN_PART = (
    " If it's performed on a partitioned topic operation might succeeded on other partitions, "
    "please check stats of individual partition."
)


@router.get("/subscriptions", dependencies=READ)
async def list_subscriptions(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """The names of the topic's subscriptions; of a partitioned topic, those of all partitions."""
    lists = await to_each_partition(request, services, topic, services.broker.subscription_names)
    # Each name once, in the order of the first partition that has it.
    return Json(list(dict.fromkeys(name for names in lists for name in cast("list[str]", names))))


@router.put("/subscription/{subscription}", dependencies=ADMINISTER)
async def create_subscription(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Create a subscription that begins with the message the body names, else with the next one."""
    if not topic.is_persistent:
        raise RestError(
            400, "Create subscription on non-persistent topic can only be done through client"
        )
    name = path_value(request, "subscription")
    # Read before the topic is loaded, so that a wrong body creates nothing.
    body = await object_body(request)
    # Without a body it begins with the next message.
    start = ResetPosition.parse(body) if body is not None else None
    properties = _shown(_texts(body.get("properties"))) if body is not None else {}
    # Of each partition: whether it had the subscription already. Where some had, the others get it
    # all the same before the request is refused.
    is_known = []

    async def create(part: TopicName) -> None:
        loaded = await topic_here(services, part, create=True)
        try:
            # Does nothing where the subscription exists.
            is_new = await loaded.part(PersistentSubscriptions).create(
                name,
                # ``LATEST``, and what lies beyond it, stands for "the next message", as no start at
                # all does.
                start=None if start is None or start.position >= LATEST else start.position,
                properties=properties,
                is_replicated=flag(request, "replicated"),
            )
        except NotAllowed as error:
            raise RestError(409, str(error)) from None
        # Not refused here: the other partitions shall get it, too.
        is_known.append(not is_new)

    await to_each_partition(request, services, topic, create)
    # Upstream's status for a subscription that exists.
    if any(is_known):
        raise RestError(409, "Subscription already exists for topic")
    return no_content()


@router.delete("/subscription/{subscription}", dependencies=ADMINISTER)
async def delete_subscription(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Delete a subscription; ``force`` disconnects its consumers first."""
    force = flag(request, "force")

    async def delete(loaded: Topic, subscription: Subscription) -> None:
        if subscription.consumers and not force:
            raise RestError(412, "Subscription has active connected consumers")
        await loaded.part(PersistentSubscriptions).delete_subscription(subscription, force=force)

    try:
        await _of_every_partition(request, services, topic, delete)
    except SubscriptionNotFound:
        if await services.partitioned_topics.partitions(topic):
            raise RestError(404, "Subscription not found") from None
        raise
    return no_content()


# Moving forward


@router.post("/subscription/{subscription}/skip/{count}", dependencies=ADMINISTER)
async def skip_messages(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Skip so many entries."""
    count = integer_in_path(request, "count")
    await refuse_partitioned(services, topic, "Skip messages on a partitioned topic is not allowed")
    # ``entries``: a batch counts as one.
    return await _of_one(
        request, services, topic, lambda _, subscription: subscription.skipping.entries(count)
    )


@router.post("/subscription/{subscription}/skip_all", dependencies=ADMINISTER)
async def skip_all_messages(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Skip all messages."""
    await _of_every_partition(
        request, services, topic, lambda _, subscription: subscription.skipping.everything()
    )
    return no_content()


@router.post("/subscription/{subscription}/expireMessages/{seconds}", dependencies=ADMINISTER)
async def expire_by_time(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Skip messages that are older than so many seconds."""
    seconds = integer_in_path(request, "seconds")

    async def expire(loaded: Topic, subscription: Subscription) -> None:
        await _expire(loaded, subscription, seconds)

    await _of_every_partition(request, services, topic, expire)
    return no_content()


@router.post("/all_subscription/expireMessages/{seconds}", dependencies=ADMINISTER)
async def expire_for_all(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Skip messages that are older than so many seconds, of every subscription."""
    seconds = integer_in_path(request, "seconds")

    async def expire(part: TopicName) -> None:
        loaded = await topic_here(services, part)
        # A copy: subscriptions may come and go while one is moved.
        for subscription in list(loaded.part(PersistentSubscriptions).subscriptions.values()):
            await _expire(loaded, subscription, seconds)

    await to_each_partition(request, services, topic, expire)
    return no_content()


@router.post("/subscription/{subscription}/expireMessages", dependencies=ADMINISTER)
async def expire_by_position(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Skip all messages up to a position."""
    upto = await _position(request)
    await refuse_partitioned(
        services, topic, "Expire message at position is not supported for partitioned-topic"
    )

    async def expire(loaded: Topic, subscription: Subscription) -> None:
        if not subscription.cursor.backlog_entries:
            raise _not_issued("position", loaded, subscription)
        # The last message to skip.
        last = upto.position
        if upto.is_excluded:
            last = loaded.managed_ledger.chain.previous_of(last)
        # Acknowledges all up to it, the message itself included.
        await subscription.skipping.expire_upto(last)

    return await _of_one(request, services, topic, expire)


# As upstream, expiring messages of a subscription without a backlog is an error.
async def _expire(loaded: Topic, subscription: Subscription, seconds: int) -> None:
    if not subscription.cursor.backlog_entries:
        raise _not_issued("timestamp", loaded, subscription)
    await subscription.skipping.expire_older_than(seconds)


def _not_issued(what: str, loaded: Topic, subscription: Subscription) -> RestError:
    reason = NOTHING_EXPIRED.format(what=what, topic=loaded.name, subscription=subscription.name)
    return RestError(409, reason + EXPIRED_IN_PART if what == "timestamp" else reason)


# Moving in either direction


@router.post("/subscription/{subscription}/resetcursor/{timestamp}", dependencies=ADMINISTER)
async def reset_to_time(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Go on with the first message that was published at that time (Unix, ms) or later."""
    time_ms = integer_in_path(request, "timestamp")
    await _of_every_partition(
        request, services, topic, lambda _, subscription: subscription.seek_time(time_ms)
    )
    return no_content()


@router.post("/subscription/{subscription}/resetcursor", dependencies=ADMINISTER)
async def reset_to_position(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Go on with a message, or (``excluded``) with the one after it."""
    target = await _position(request)
    await refuse_partitioned(
        services, topic, "Reset-cursor at position is not allowed for partitioned-topic"
    )

    async def reset(loaded: Topic, subscription: Subscription) -> None:
        # Read from the entry: it decides which of its messages are left. None where the entry does
        # not exist (any more): then it counts as one that is no batch.
        payload = await entry_at(loaded.managed_ledger.reader, target.position)
        messages = None if payload is None else batch_size(payload)
        first, remaining = target.first_and_remaining(messages or 0)
        await subscription.seek(first, remaining)

    return await _of_one(request, services, topic, reset)


# Properties


@router.get("/subscription/{subscription}/properties", dependencies=READ)
async def get_properties(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """The properties that its creators have set."""

    async def shown(_: Topic, subscription: Subscription) -> dict[str, str]:
        return _shown(subscription.cursor.properties)

    # Where partitions disagree, the last one's value is shown.
    found = await _of_every_partition(request, services, topic, shown)
    # Of a partitioned topic, those of all partitions together.
    return Json({key: text for each in found for key, text in _texts(each).items()})


@router.put("/subscription/{subscription}/properties", dependencies=ADMINISTER)
async def set_properties(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """Replace the properties that its creators have set."""
    properties = _shown(await text_map_body(request))

    async def replace(_: Topic, subscription: Subscription) -> None:
        cursor = subscription.cursor
        # All former ones are removed, but for the broker's own. Keys of the broker's own cannot
        # come in either: ``_shown`` has taken them out of the body.
        await cursor.change_properties(properties, remove=tuple(_shown(cursor.properties)))

    await _of_every_partition(request, services, topic, replace)
    return no_content()


# Common to these calls


async def _of_every_partition(
    request: Request, services: Services, topic: TopicName, work: Work
) -> list[object]:
    """Do ``work`` to the subscription in the path, of the topic or of each of its partitions."""
    on_topic = _on_subscription(request, services, work)
    try:
        return await to_each_partition(request, services, topic, on_topic)
    except SubscriptionNotFound as error:
        # The client named the topic as a whole, not the partition that lacks it.
        raise SubscriptionNotFound(error.subscription, str(topic)) from None


async def _of_one(request: Request, services: Services, topic: TopicName, work: Work) -> Response:
    """Do ``work`` to the subscription in the path, of a topic that is not partitioned."""
    await to_one_topic(request, services, topic, _on_subscription(request, services, work))
    return no_content()


def _on_subscription(
    request: Request, services: Services, work: Work
) -> Callable[[TopicName], Awaitable[object]]:
    """``work`` on the subscription in the path, as a function of the topic's name."""
    name = path_value(request, "subscription")

    async def on_topic(part: TopicName) -> object:
        # Loads the topic where it is not in use.
        loaded = await topic_here(services, part)
        return await work(loaded, loaded.part(PersistentSubscriptions).named(name))

    return on_topic


async def _position(request: Request) -> ResetPosition:
    """The message that the body names. Raises ``RestError`` 400."""
    body = await object_body(request)
    if body is None:
        raise RestError(400, "The body should name a message: ledgerId and entryId")
    return ResetPosition.parse(body)


def _texts(properties: object) -> dict[str, str]:
    if not isinstance(properties, dict):
        return {}
    return {str(key): str(value) for key, value in properties.items()}


def _shown(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that users may see and set: the broker's own are left out."""
    return {
        name: value for name, value in properties.items() if not name.startswith(INTERNAL_PROPERTY)
    }
