"""The producer that users hold: it encodes values, chooses partitions, and bounds what is pending.

Under it a ``TopicProducer`` for each partition makes payloads and sends them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar, Unpack

from geminga._channels.registry import Channels
from geminga.errors import ClientError, ProducerQueueFull, SendTimedOut
from geminga.lifecycle import AsyncClosable
from geminga.message_ids import MessageId
from geminga.producers.options import MessageOptions, ProducerSettings, attributes_of
from geminga.producers.outgoing.attributes import MessageAttributes
from geminga.producers.outgoing.batches import SendCallback
from geminga.producers.outgoing.routing import PartitionRouter, RoutedMessage
from geminga.producers.send_window import MemoryLimit, SendWindow, WindowWaiter
from geminga.producers.topic_producer import TopicProducer
from geminga.schemas.key_value import KeyValueEncoding, KeyValueSchema
from geminga.schemas.schema import Schema
from geminga_protocol.pulsar.enums import AccessMode
from geminga_protocol.pulsar.topics.topic_names import PARTITION_INDEX_MAX, TopicName
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

ValueT = TypeVar("ValueT")
OutcomeT = TypeVar("OutcomeT")

# ``ready`` lets the loop turn after so much: a program that never waits would fill the window
# before the first message leaves. A turn costs 10 us, which is little for a hundred messages.
TURN_BYTES = 128 * 1024
TURN_MESSAGES = 100


# The way of a message. From the value to the open batch nothing is awaited but a place in the
# window, for which callers wait in order: so messages keep the order of the calls.
#
#   value ─▶ payload ─▶ partition ─▶ TopicProducer: a place in the window, an open batch
#                                                        │ full, old enough, or awaited
#                                                        ▼
#   place given back ◀─ callback ◀─ receipt, error ◀─ ProducerChannel: kept until then
#
# A call that raises has taken no place, and its callback is not called. Of every other call the
# callback is called once, and the place is given back once.
class Producer(AsyncClosable, Generic[ValueT]):
    """Publishes messages to a topic. Made by ``Client.producer``; closed by ``close``, by
    ``async with``, or by the client:

        async with client.producer("orders") as producer:
            message_id = await producer.send(b"one more")  # stored
            for line in lines:
                await producer.ready()
                producer.send_nowait(line)  # stored by the end of the block

    Messages are stored in the order of the calls, in each partition. When a connection breaks,
    messages without a receipt are sent again on the next one, in the same order with the same
    sequence ids: a message may be stored twice (unless the topic deduplicates), and none is left
    out. While there is no connection messages wait for one, up to ``send_timeout_s``.

    ``send`` returns or raises the outcome of its message. ``send_nowait`` reports it to a callback;
    without one, the first error is raised by the next ``ready``, ``flush``, ``close`` or end of the
    ``async with`` block, once, with a note of how many messages were not stored.
    """

    def __init__(
        self,
        channels: Channels,
        topic: TopicName,
        schema: Schema[ValueT],
        settings: ProducerSettings,
        *,
        memory: MemoryLimit,
        clock: Clock,
    ) -> None:
        self.topic = str(topic)
        """The whole name of the topic."""
        # Set by ``open``.
        self.name = ""
        """The producer's name, chosen by the broker if the options have none."""
        self._channels = channels
        self._topic = topic
        # Bound once, because each message calls it.
        self._encode = schema.encode
        # For key-value pairs whose key is the message's: encodes the two apart.
        self._encode_parts: Callable[[Any], tuple[bytes | None, bytes | None]] | None = None
        kind: object = schema
        if isinstance(kind, KeyValueSchema) and kind.encoding is KeyValueEncoding.SEPARATED:
            self._encode_parts = kind.encode_parts
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._window = SendWindow(memory, settings.pending_messages_max)
        # The first error of a message without a callback that was not raised yet, and how many such
        # messages were not stored.
        self._failure: ClientError | None = None
        self._failed_messages = 0
        # Have all partitions ended?
        self._has_ended = False
        # Sent since ``ready`` last let the loop turn.
        self._turn_bytes = self._turn_messages = 0
        # Other access modes are for the topic as a whole: each partition's broker is asked at once.
        is_shared = settings.access_mode is AccessMode.SHARED
        self._is_lazy = settings.lazy_start_partitioned_producers and is_shared
        first = channels.random.randrange(PARTITION_INDEX_MAX)
        self._router = PartitionRouter(settings.router, settings.hashing, first)
        # One for each partition; one for a topic without, which is then also ``_only``.
        self._parts: list[TopicProducer] = []
        self._only: TopicProducer | None = None
        self._watch: asyncio.Task[object] | None = None

    @property
    def producer_id(self) -> int:
        """The producer's id on its connections, which no other producer or consumer of the client
        has. Each partition has an id of its own; this is the first one's."""
        # Asked each time: a partition that is opened later, or anew, has another.
        return self._parts[0].channel.id

    async def open(self) -> None:
        """Have a broker accept the producer, for each partition; for ``Client.producer``.

        Raises ``ClientError``; nothing is open then.
        """
        partitions = 0
        if self._topic.partition_index < 0:
            partitions = await self._channels.partitions(self._topic)
        # Lazy producers of one topic begin at different partitions.
        index = self._router.turn(partitions) if partitions and self._is_lazy else 0
        first = self._topic.partition(index) if partitions else self._topic
        # The first partition alone at first: a broker that chooses the producer's name does so
        # there, and all the others are opened with that name.
        await self._open_parts([first], self._settings)
        self.name = self._parts[0].channel.name
        if not partitions:
            self._only = self._parts[0]
            return
        if self._is_lazy:
            before = [self._topic.partition(each) for each in range(index)]
            # Partitions are found by their places in the list.
            self._parts[:0] = self._new_parts(before, replace(self._settings, name=self.name))
        await self._open_partitions(partitions)
        # Started last: until then ``_open_parts`` takes a failure for one of the opening, and
        # closes all.
        self._watch = self._channels.spawn(
            self._watch_partitions(), name=f"the partitions of {self._topic}"
        )

    async def _open_partitions(self, partitions: int) -> None:
        """Open the partitions that are not open yet, or (lazily) leave that to their first
        messages. All have the name that the first one got."""
        topics = [self._topic.partition(index) for index in range(len(self._parts), partitions)]
        settings = replace(self._settings, name=self.name)
        if self._is_lazy:
            self._parts += self._new_parts(topics, settings)
        else:
            await self._open_parts(topics, settings)

    async def _open_parts(self, topics: Sequence[TopicName], settings: ProducerSettings) -> None:
        """Have brokers accept all of these partitions, or close them. Raises ``ClientError``."""
        parts = self._new_parts(topics, settings)
        try:
            await asyncio.gather(*[part.open() for part in parts])
        except BaseException:
            # Those that were accepted hold the producer's name at their brokers.
            await asyncio.gather(*[part.close() for part in parts])
            if not self._watch:
                # The producer itself is being opened: it fails with its first partition.
                await asyncio.gather(*[part.close() for part in self._parts])
            raise
        self._parts += parts

    def _new_parts(
        self, topics: Iterable[TopicName], settings: ProducerSettings
    ) -> list[TopicProducer]:
        return [
            TopicProducer(
                self._channels,
                topic,
                settings,
                window=self._window,
                clock=self._clock,
                on_failure=self._note_failure,
                on_end=self._part_ended,
            )
            for topic in topics
        ]

    async def _watch_partitions(self) -> None:
        """Open the partitions that are added to the topic, until the producer is closed."""
        while True:
            await asyncio.sleep(self._settings.partitions_refresh_s)
            try:
                # Partitions are never taken away, so that the list only grows.
                partitions = await self._channels.partitions(self._topic)
                if partitions > len(self._parts):
                    await self._open_partitions(partitions)
                    log.info(
                        "topic has more partitions",
                        extra={"topic": str(self._topic), "partitions": partitions},
                    )
            except ClientError as error:
                log.warning(
                    "partitions not known",
                    extra={"topic": str(self._topic), "reason": str(error)},
                )

    @property
    def partitions(self) -> int:
        """How many partitions the topic has, as far as the producer knows; 0 without partitions."""
        return 0 if self._only is not None else len(self._parts)

    @property
    def last_sequence_id(self) -> int:
        """The sequence id of the last message that was sent; -1 before the first, unless the broker
        knows an earlier one of this name.

        Messages of a batch are numbered when it leaves. Each partition numbers its own messages;
        this is the highest of all partitions.
        """
        return max(part.last_sequence_id for part in self._parts)

    @property
    def pending_messages(self) -> int:
        """How many messages have no receipt yet, those in open batches included."""
        return self._window.messages

    @property
    def is_connected(self) -> bool:
        """Is there a broker at this moment, for every partition that was started?"""
        # A part that is started lazily has no attachment before its first message.
        return all(part.channel.is_connected for part in self._parts if part.channel.attachments)

    # ---- sending

    async def send(self, value: ValueT | None, **options: Unpack[MessageOptions]) -> MessageId:
        """Send a message, wait until it is stored, and return its id. ``None`` is a null value.

        ``MessageOptions`` explains the options: ``await producer.send(order, key="eu")``. The
        message leaves at the end of the loop's turn, in one batch with others that were sent before
        it or in the same turn: many calls at the same time (``asyncio.gather``) are fast, one after
        the other takes a round trip each.

        Waits first while as many messages are pending as may be. A call that is cancelled during
        that wait sends nothing; later the message may be stored all the same. Raises what the
        schema raises for the value, ``MessageTooLarge``, ``SendTimedOut``, ``Closed``, or the
        ``ClientError`` that ended the producer.
        """
        # Encoded before any wait: what is wrong with the value is raised at once, and the value may
        # change afterwards.
        payload, attributes, sequence_id = self._message(value, options)
        stored: asyncio.Future[MessageId] = self._loop.create_future()
        submit = partial(
            self._submit, payload, attributes, sequence_id, partial(_settle, stored), at_once=True
        )
        if not self._window.is_full:
            submit()
            return await stored
        # An ended producer admits no waiter any more, and would let this one wait for its timeout.
        self._check_open()
        return await self._wait_for_room(submit, stored)

    def send_nowait(
        self,
        value: ValueT | None,
        callback: SendCallback | None = None,
        **options: Unpack[MessageOptions],
    ) -> None:
        """Send a message with its batch, and return without waiting.

        ``callback(message_id, error)`` is called once, with one of them, the other is ``None``. It
        runs on the loop and must not block; what it raises goes to the loop's exception handler.
        ``MessageOptions`` explains the options.

        Raises ``ProducerQueueFull`` where as many messages are pending as may be (``await ready()``
        between messages avoids that), what the schema raises for the value, ``MessageTooLarge``,
        ``Closed``, or the ``ClientError`` that ended the producer. The callback is not called then.
        """
        # HOT: plain messages, as most are, take a short way.
        if self._window.is_full:
            self._check_open()
            raise ProducerQueueFull(self._window.messages, self._window.memory.used_bytes)
        if not options and value is not None and self._encode_parts is None:
            payload = self._encode(value)
            self._turn_messages += 1
            self._turn_bytes += len(payload)
            (self._only or self._part_for(payload, None)).submit_plain(payload, callback)
        else:
            payload, attributes, sequence_id = self._message(value, options)
            self._submit(payload, attributes, sequence_id, callback)

    async def ready(self) -> None:
        """Wait until there is room for many messages, and let batches leave.

        Await it between calls of ``send_nowait``: mostly it does not wait at all. It waits while
        half of ``pending_messages_max`` or of ``memory_limit_bytes`` is taken. Raises the first
        error of a message that was sent without a callback, or the error that ended the producer.
        """
        if self._failure is not None or self._has_ended:
            self._raise_failure()
            self._check_open()
        if self._turn_bytes >= TURN_BYTES or self._turn_messages >= TURN_MESSAGES:
            # The loop turns, although there may be room: otherwise receipts would not be read, and
            # frames would not leave, as long as a program only sends.
            self._turn_bytes = self._turn_messages = 0
            await asyncio.sleep(0)
        if self._window.is_half_full:
            self._check_open()
            free: asyncio.Future[None] = self._loop.create_future()
            await self._wait_for_room(partial(_settle, free, None, None), free, wants_half=True)
            # The window may be free because everything in it has failed.
            self._check_open()

    async def flush(self) -> None:
        """Send open batches, and wait until everything sent before is stored or has failed.

        Raises the first error of a message that was sent without a callback.
        """
        await asyncio.gather(*[part.flush() for part in self._parts])
        self._raise_failure()

    def _message(
        self, value: ValueT | None, options: MessageOptions
    ) -> tuple[bytes, MessageAttributes | None, int | None]:
        """The payload, attributes and sequence id of a message."""
        attributes, sequence_id = attributes_of(self._clock.wall_ms(), **options)
        payload: bytes | None = None
        if value is not None and self._encode_parts is None:
            payload = self._encode(value)
        elif value is not None and self._encode_parts is not None:
            attributes = attributes or MessageAttributes()
            if attributes.key is not None:
                raise ValueError("the key of the pair is the message's key; it has no other")
            attributes.key, payload = self._encode_parts(value)
            attributes.has_null_key = attributes.key is None
        if payload is None:
            attributes = attributes or MessageAttributes()
            attributes.is_null = True
        return payload or b"", attributes, sequence_id

    def _submit(
        self,
        payload: bytes,
        attributes: MessageAttributes | None,
        sequence_id: int | None,
        callback: SendCallback | None,
        *,
        at_once: bool = False,
    ) -> None:
        """Hand a message to its partition; the window has a place for it."""
        self._turn_messages += 1
        self._turn_bytes += len(payload)
        part = self._only or self._part_for(payload, attributes)
        part.submit(payload, attributes, sequence_id, callback, at_once=at_once)

    def _part_for(self, payload: bytes, attributes: MessageAttributes | None) -> TopicProducer:
        """Choose the partition that a message goes to."""
        key, properties = None, None
        if attributes is not None:
            key, properties = attributes.partition_key, attributes.properties
        parts = self._parts
        # Messages without a key stay with one partition while its batch is open: spread over all of
        # them, each would leave in a small batch of its own. ``turn`` is that of the last message,
        # before the router goes on to the next.
        has_open_batch = parts[self._router.turn(len(parts))].has_open_batch
        message = RoutedMessage(payload, key, properties or {})
        return parts[self._router.partition(message, len(parts), has_open_batch=has_open_batch)]

    async def _wait_for_room(
        self,
        enter: Callable[[], None],
        outcome: asyncio.Future[OutcomeT],
        *,
        wants_half: bool = False,
    ) -> OutcomeT:
        """Have ``enter`` called when the window has a place; returns the ``outcome`` it leads to.

        Raises ``SendTimedOut`` where there is no place in time, or what ``enter`` raised.
        """
        timeout_s = self._settings.send_timeout_s
        timer: asyncio.TimerHandle | None = None

        def enter_in_turn() -> None:
            if timer is not None:
                timer.cancel()
            try:
                enter()
            # Also what the router raises, or what is wrong with the properties: the caller waits
            # for it. This runs while another message is settled, which must not fail with it.
            except Exception as error:  # noqa: BLE001  # it is raised by ``outcome``
                _settle(outcome, None, error)

        waiting = WindowWaiter(enter_in_turn, partial(_settle, outcome, None), wants_half)

        def expire(timeout_s: float) -> None:
            # Not if it was just admitted: then the message is on its way, and has a timeout of its
            # own.
            if self._window.withdraw(waiting):
                _settle(outcome, None, SendTimedOut(None, timeout_s))

        # ``ready`` has no message that could time out.
        if timeout_s is not None and not wants_half:
            timer = self._loop.call_later(timeout_s, expire, timeout_s)
        # Behind those that wait already: the window counts as full for every other message
        # meanwhile.
        self._window.enqueue(waiting)
        try:
            return await outcome
        finally:
            if timer is not None:
                timer.cancel()
            # A caller that was cancelled must not be admitted later, when no call waits for its
            # message.
            if outcome.cancelled():
                self._window.withdraw(waiting)

    def _check_open(self) -> None:
        """Raise the error that ended the producer, if one did."""
        if self._has_ended:
            self._parts[0].channel.check_open()

    def _part_ended(self, error: ClientError) -> None:
        """End the producer with the last of its partitions."""
        # As long as one partition takes messages, the producer goes on.
        if self._parts and all(part.channel.error is not None for part in self._parts):
            self._has_ended = True
            self._window.end(error)

    def _note_failure(self, error: ClientError, messages: int) -> None:
        self._failure = self._failure or error
        self._failed_messages += messages

    def _raise_failure(self) -> None:
        """Raise the first error of messages without callbacks, if there was one, once."""
        error, messages = self._failure, self._failed_messages
        self._failure, self._failed_messages = None, 0
        if error is not None:
            error.add_note(f"{messages} messages sent without callbacks were not stored")
            raise error

    # ---- closing

    async def close(self) -> None:
        """Wait up to ``close_timeout_s`` for the receipts of what was sent, then leave the broker.

        Messages without a receipt by then fail with ``Closed``. Closing twice is harmless. Raises
        the first error of a message that was sent without a callback.
        """
        await self._close_parts()
        self._raise_failure()

    async def _close_parts(self) -> None:
        if self._watch is not None:
            # First, or it might open partitions that nothing closes.
            self._watch.cancel()
        await asyncio.gather(*[part.close() for part in self._parts])

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
            return
        # The error that ended the block must not be hidden behind that of a message.
        await self._close_parts()


def _settle(
    outcome: asyncio.Future[OutcomeT], result: OutcomeT | None, error: Exception | None
) -> None:
    """Report ``result``, or the error that came instead, to a caller that waits for it."""
    # Done before if the caller was cancelled, or timed out.
    if outcome.done():
        return
    if error is None:
        outcome.set_result(result)  # type: ignore[arg-type]  # there is one where no error came
    else:
        outcome.set_exception(error)
