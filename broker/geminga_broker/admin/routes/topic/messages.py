"""``…/{topic}``: reads single messages and message ids, without a consumer.

As upstream, these are refused for a partitioned topic as a whole: each is about one log.
"""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.documents.message import (
    message_body,
    message_headers,
    message_id,
)
from geminga_broker.admin.owner_routes import (
    policies_here,
    refuse_partitioned,
    to_one_topic,
    topic_here,
)
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.reset_position import ResetPosition
from geminga_broker.admin.services import Services
from geminga_broker.errors import TopicNotFound
from geminga_broker.managed_ledger.acknowledgement.unacknowledged import nth_unacknowledged
from geminga_broker.managed_ledger.log_browser import (
    Found,
    entry_at,
    last_message,
    message_with_index,
    nth_in_log,
    scan_backlog,
)
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.reading.payloads import entry_time_ms
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_server.authorization import Action
from geminga_server.rest.access import on_topic
from geminga_server.rest.answers import Json
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import (
    TopicArg,
    integer_in_path,
    object_body,
    path_value,
    whole_number,
)

router = APIRouter(prefix="/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}")

CONSUME = [on_topic(Action.CONSUME)]


@router.get("/subscription/{subscription}/position/{number}", dependencies=CONSUME)
async def peek(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """The ``number``-th message of a subscription's backlog. A subscription that does not exist is
    created with all messages in its backlog: official clients read topics this way."""
    number = integer_in_path(request, "number")
    name = path_value(request, "subscription")
    loaded = await _loaded(
        request, services, topic, "Peek messages on a partitioned topic is not allowed"
    )
    # Does nothing where it exists.
    await loaded.subscribing.create(name, from_earliest=True)
    cursor = loaded.part(PersistentSubscriptions).named(name).cursor
    reader = loaded.managed_ledger.reader
    # Counted from 1; no message has the number 0. From the acknowledgements in memory; only the
    # entry itself is read.
    found = nth_unacknowledged(cursor.acknowledged, reader.chain, number) if number > 0 else None
    if found is None:
        raise RestError(404, "Message not found")
    return _message((found, await reader.read_one(found)))


@router.get("/ledger/{ledger}/entry/{entry}", dependencies=CONSUME)
async def get_message(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """The message at that ledger and entry."""
    position = Position(integer_in_path(request, "ledger"), integer_in_path(request, "entry"))
    loaded = await _loaded(
        request, services, topic, "GetMessageById is not allowed on partitioned-topic"
    )
    # Also one that was acknowledged by all, as long as its ledger is kept.
    payload = await entry_at(loaded.managed_ledger.reader, position)
    if payload is None:
        raise RestError(404, "Message id not found")
    return _message((position, payload))


@router.get("/examinemessage", dependencies=CONSUME)
async def examine_message(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """The ``messagePosition``-th message from the end of the log that ``initialPosition`` names."""
    loaded = await _loaded(
        request,
        services,
        topic,
        "Examine messages on a partitioned topic is not allowed, please try examine message on "
        "specific topic partition",
    )
    number = whole_number(request.query_params.get("messagePosition", "1"))
    if number is None:
        raise RestError(404, "messagePosition should be a whole number")
    found = await nth_in_log(
        loaded.managed_ledger.reader,
        number,
        from_latest=request.query_params.get("initialPosition") != "earliest",
    )
    if found is None:
        raise RestError(412, "Could not examine messages due to the total message is zero")
    return _message(found)


@router.get("/messageid/{timestamp}", dependencies=CONSUME)
async def get_message_id(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """The first message published at that time (Unix, ms) or later."""
    time_ms = integer_in_path(request, "timestamp")
    loaded = await _loaded(
        request,
        services,
        topic,
        "Get message ID by timestamp on a partitioned topic is not allowed, please try do it on "
        "specific topic partition",
    )
    # By bisection over the ledgers: message times are taken to grow along the log.
    position = await loaded.managed_ledger.reader.first_where(
        lambda payload: entry_time_ms(payload) >= time_ms
    )
    return Json(message_id(position, topic.partition_index))


@router.get("/getMessageIdByIndex", dependencies=CONSUME)
async def get_message_id_by_index(
    request: Request, topic: TopicArg, services: ServicesArg
) -> Response:
    """The entry with the message of that ``index``; Pulsar has this since 4.1 (PIP-415)."""
    wanted = request.query_params.get("index", "")
    if not topic.is_persistent:
        raise RestError(406, "GetMessageIdByIndex is not allowed on a non-persistent topic")
    loaded = await _loaded(
        request, services, topic, "GetMessageIdByIndex is not allowed on partitioned-topic"
    )
    # Only the broker entry metadata has the index of a message.
    if loaded.managed_ledger.stamps is None:
        raise RestError(412, "GetMessageIdByIndex is not allowed when broker entry metadata is off")
    index = whole_number(wanted)
    # No message has the index -1.
    position = await message_with_index(
        loaded.managed_ledger.reader, -1 if index is None else index
    )
    if position is None:
        raise RestError(404, f"Message not found for index {wanted}")
    return Json(
        {
            "ledgerId": position.ledger_id,
            "entryId": position.entry_id,
            "partitionIndex": topic.partition_index,
        }
    )


@router.get("/lastMessageId", dependencies=[on_topic(Action.READ)])
async def get_last_message_id(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """The newest message; of a batch, the last in it."""
    await policies_here(services, topic)
    if await services.partitioned_topics.partitions(topic):
        raise TopicNotFound(str(topic))
    # The text of the refusal is not needed, as partitioned topics were refused above.
    loaded = await _loaded(request, services, topic, "")
    last, batch_index = await last_message(loaded.managed_ledger.reader)
    document = message_id(last, topic.partition_index)
    # Upstream answers with another class for a message within a batch, which has other members.
    if batch_index < 0:
        return Json(document)
    del document["batchSize"]
    counts = {"batchSize": 0, "outstandingAcksInSameBatch": 0, "originalBatchSize": 0}
    return Json({**document, "batchIndex": batch_index, **counts})


@router.put("/backlogSize", dependencies=[on_topic(Action.ADMINISTER)])
async def get_backlog_size(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """About how many bytes are stored after a message; all bytes for one that is not in the log."""
    body = await object_body(request)
    # Without a body it is the earliest position.
    position = ResetPosition.parse(body or {}).position
    loaded = await _loaded(
        request, services, topic, "calculate backlog size is not allowed for partitioned-topic"
    )
    chain = loaded.managed_ledger.chain
    # The earliest position, or one in a ledger that was trimmed.
    if position[1] < 0 or chain.span(position[0]) is None:
        return Json(chain.total_bytes)
    return Json(chain.bytes_between(position, chain.last_confirmed))


@router.post(
    "/subscription/{subscription}/analyzeBacklog", dependencies=[on_topic(Action.ADMINISTER)]
)
async def analyze_backlog(request: Request, topic: TopicArg, services: ServicesArg) -> Response:
    """How many entries and messages are in a subscription's backlog; no filter rejects any."""
    loaded = await _loaded(
        request,
        services,
        topic,
        "Analyze backlog on a partitioned topic is not allowed, please try do it on specific topic "
        "partition",
    )
    subscription = loaded.part(PersistentSubscriptions).named(path_value(request, "subscription"))
    # Reads the whole backlog, up to a bound: then ``aborted`` says so.
    scan = await scan_backlog(loaded.managed_ledger.reader, subscription.cursor)
    return Json(
        {
            "entries": scan.entries,
            "messages": scan.messages,
            "filterRejectedEntries": 0,
            "filterAcceptedEntries": scan.entries,
            "filterRescheduledEntries": 0,
            "filterRejectedMessages": 0,
            "filterAcceptedMessages": scan.messages,
            "filterRescheduledMessages": 0,
            "aborted": scan.is_aborted,
            "firstMessageId": None if scan.first is None else str(scan.first),
            "lastMessageId": None if scan.last is None else str(scan.last),
        }
    )


async def _loaded(
    request: Request, services: Services, topic: TopicName, partitioned_reason: str
) -> Topic:
    """The topic, loaded by this broker; ``partitioned_reason`` refuses a partitioned one."""
    # Before the lookup: a partitioned topic as a whole has no owner.
    await refuse_partitioned(services, topic, partitioned_reason)
    return await to_one_topic(request, services, topic, partial(topic_here, services))


def _message(found: Found) -> Response:
    position, payload = found
    # A batch is returned whole; a header has its number of messages.
    answer = Response(message_body(payload), media_type="application/octet-stream")
    # Spelled as by upstream, not in lower case: Java's client finds some in no other spelling.
    answer.raw_headers += [
        (name.encode(), value.encode("latin-1"))
        for name, value in message_headers(position, payload).items()
    ]
    return answer
