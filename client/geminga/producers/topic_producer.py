"""Publishes to one topic or partition: numbers messages, makes payloads of them, tells what became
of each.

Whether there is room for a message was asked before; here it is taken and given back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from geminga._channels.channel import Channels
from geminga._channels.producer_channel import ProducerChannel
from geminga.compression import compressor
from geminga.crypto.encryption import TAG_BYTES, Encryptor
from geminga.errors import ClientError, Closed, MessageTooLarge
from geminga.message_ids import MessageId, from_proto
from geminga.producers.options import ProducerSettings
from geminga.producers.outgoing.attributes import MessageAttributes
from geminga.producers.outgoing.batches import (
    SINGLE_OVERHEAD_BYTES,
    Batch,
    OpenBatches,
    SendCallback,
    number,
)
from geminga.producers.send_window import SendWindow
from geminga_protocol.pulsar.api_pb2 import MessageIdData, MessageMetadata
from geminga_protocol.pulsar.frames import FRAME_OVERHEAD_BYTES
from geminga_protocol.pulsar.payload import encode_numbered_batch, encode_payload
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import Clock

# What properties and keys may take beyond a message of the largest size: the frame's overhead,
# without what the command, the producer's name and the numbers need of it.
METADATA_BYTES_MAX = FRAME_OVERHEAD_BYTES - 1024

# What a chunk has besides its metadata without number, and its share of the message: checksum and
# size (10 bytes), number of chunks and the chunk's own (14 at most).
CHUNK_OVERHEAD_BYTES = 24
# Attributes so large that chunks would have room for less are refused.
CHUNK_BYTES_MIN = 1024


class _Early(NamedTuple):
    """A message that came before a broker had accepted its producer: what ``submit`` was told."""

    payload: bytes
    attributes: MessageAttributes | None
    sequence_id: int | None
    callback: SendCallback | None
    at_once: bool


class TopicProducer:
    """One topic's share of a producer.

    ``on_failure`` is called with an error and how many messages without a callback it concerns;
    ``on_end`` when no broker will take anything more. Without ``open`` it asks a broker to accept
    it with its first message; what comes until then waits, and fails if none does.
    """

    def __init__(
        self,
        channels: Channels,
        topic: TopicName,
        settings: ProducerSettings,
        *,
        window: SendWindow,
        clock: Clock,
        on_failure: Callable[[ClientError, int], None],
        on_end: Callable[[ClientError], None],
    ) -> None:
        self._channels = channels
        self._topic = topic
        self._settings = settings
        self._window = window
        self._clock = clock
        self._on_failure = on_failure
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._partition = topic.partition_index
        self._next_sequence_id: int | None = None
        self._open = None if settings.batching is None else OpenBatches(settings.batching)
        self._compressor = compressor(settings.compression)
        self._encryptor = (
            Encryptor(settings.encryption, clock.monotonic) if settings.encryption else None
        )
        # Sends the open batches; whether at the end of this turn, or when their time is over.
        self._timer: asyncio.Handle | None = None
        self._leaves_at_once = False
        # What ``flush`` waits for: the last batch that had left, which is settled after all others.
        self._last: Batch | None = None
        self._flushing: list[tuple[Batch, asyncio.Future[None]]] = []
        # Until a broker has accepted the channel: what waits for that, bounded by the room, and the
        # task that asks.
        self._early: deque[_Early] | None = deque()
        self._starting: asyncio.Task[object] | None = None
        self.channel = self._new_channel()

    def _new_channel(self) -> ProducerChannel[Batch]:
        channel: ProducerChannel[Batch] = ProducerChannel(
            self._channels, self._topic, self._settings
        )
        channel.on_settled = self._settled
        channel.on_close = self.close
        return channel

    async def open(self) -> None:
        """Have a broker accept it. Raises the ``ClientError`` for which none did."""
        await self.channel.open()
        self.channel.on_end = self._ended
        if self.channel.error is not None:  # in the turn in which it was accepted
            self._ended(self.channel.error)
        early, self._early = self._early or (), None
        for each in early:
            try:
                self.submit(*each[:-1], at_once=each.at_once)
            except ClientError as error:  # it is too large for this broker
                self._tell_early(each, error)
        # Afterwards: whatever waits for room would overtake them.
        self._window.release(len(early), sum(len(each.payload) for each in early))

    def _begin_to_start(self) -> None:
        self._starting = self._channels.spawn(self._start(), name=f"start {self.channel.title}")
        # The task may be cancelled before its first step: only its end is certain.
        self._starting.add_done_callback(self._start_ended)

    async def _start(self) -> None:
        """``open`` for what waits; after a failure the next message tries again."""
        try:
            await self.open()
        except ClientError as error:
            if not isinstance(error, Closed):
                self.channel = self._new_channel()
            self._fail_early(error)

    def _start_ended(self, start: asyncio.Task[object]) -> None:
        self._starting = None
        if not self._early:
            return
        if start.cancelled():  # the client is closed
            self._fail_early(Closed(self.channel.title))
        else:
            self._begin_to_start()  # sent by callbacks of what has failed

    def _fail_early(self, error: ClientError) -> None:
        early, self._early = self._early or (), deque()
        for each in early:
            self._window.release(1, len(each.payload))
            self._tell_early(each, error)

    def _tell_early(self, early: _Early, error: ClientError) -> None:
        callbacks = [] if early.callback is None else [(0, early.callback)]
        self._tell(Batch(None, [early.payload], [b""], callbacks=callbacks), None, error)

    @property
    def has_started(self) -> bool:
        """Has a broker accepted it?"""
        return self._early is None

    @property
    def last_sequence_id(self) -> int:
        """The sequence id of the last message that left; -1 before the first."""
        if self._next_sequence_id is not None:
            return self._next_sequence_id - 1
        initial = self._settings.initial_sequence_id
        return self.channel.last_sequence_id if initial is None else initial

    @property
    def gathers(self) -> bool:
        """Has a batch been begun that has not left yet?"""
        return self._open is not None and not self._open.is_empty

    # ---- sending

    def submit(
        self,
        payload: bytes,
        attributes: MessageAttributes | None,
        sequence_id: int | None,
        callback: SendCallback | None,
        *,
        at_once: bool = False,
    ) -> None:
        """Take a message; it leaves when its batch does, or ``at_once``: at the end of this turn.

        Raises ``MessageTooLarge``, or the error that ended the channel; ``callback`` is not called
        then.
        """
        channel = self.channel
        if channel.error is not None:
            raise channel.error
        if self._early is not None:
            self._early.append(_Early(payload, attributes, sequence_id, callback, at_once))
            self._window.acquire(len(payload))
            if self._starting is None:
                self._begin_to_start()
            return
        encoded = b"" if attributes is None else attributes.encode_for_batch()
        message_bytes = len(payload) + len(encoded)
        batches = self._open
        if (
            batches is None
            or message_bytes >= channel.max_message_bytes
            or (attributes is not None and attributes.goes_alone)
        ):
            self._submit_alone(payload, attributes, encoded, sequence_id, callback)
            return
        if not batches.has_room(message_bytes) or not (
            sequence_id is None or batches.may_be_numbered(sequence_id)
        ):
            self.send_batches()
        if batches.is_empty:
            batches.begin(channel.max_message_bytes)
        batches.add(payload, attributes, encoded, callback, sequence_id)
        self._window.acquire(message_bytes)
        if batches.is_full:
            self.send_batches()
        elif at_once and not self._leaves_at_once:
            self._leaves_at_once = True
            self._set_timer(self._loop.call_soon(self.send_batches))
        elif self._timer is None:
            assert self._settings.batching is not None
            self._timer = self._loop.call_later(self._settings.batching.delay_s, self.send_batches)

    def submit_plain(self, payload: bytes, callback: SendCallback | None) -> None:
        """``submit`` for a message without attributes: the short way, where a batch is open."""
        if self._open is not None and self._open.add_plain(payload, callback):
            self._window.acquire(len(payload))
        else:
            self.submit(payload, None, None, callback)

    def submit_batch(self, batch: Batch) -> None:
        """Send a batch that its owner has cut and numbered, behind those that came before it; the
        owner, which hears of the channel's end at once, sends none then.

        Raises ``MessageTooLarge``; callbacks are not called then.
        """
        if len(batch) == 1:
            self._check_size(batch.payloads[0], batch.encoded_attributes[0])
        else:
            batch_bytes = batch.payload_bytes + SINGLE_OVERHEAD_BYTES * len(batch)
            if batch_bytes > self.channel.max_message_bytes:
                raise MessageTooLarge(batch_bytes, self.channel.max_message_bytes)
        self.send_batches()
        self._window.acquire(batch.payload_bytes, len(batch))
        self._send(batch)

    def _submit_alone(
        self,
        payload: bytes,
        attributes: MessageAttributes | None,
        encoded: bytes,
        sequence_id: int | None,
        callback: SendCallback | None,
    ) -> None:
        """Send a message that no batch has a place for, behind those that came before it."""
        self._check_size(payload, encoded)
        if attributes is not None and attributes.goes_alone:
            attributes.describe(MessageMetadata())  # what cannot be is raised before all else
        self.send_batches()
        batch = Batch(attributes, [payload], [encoded], payload_bytes=len(payload) + len(encoded))
        if callback is not None:
            batch.callbacks.append((0, callback))
        if sequence_id is not None:
            batch.sequence_ids = [sequence_id]
        self._window.acquire(batch.payload_bytes)
        self._send(batch)

    def _check_size(self, payload: bytes, encoded: bytes) -> None:
        """Raise ``MessageTooLarge`` for a message that the broker will not take."""
        message_bytes_max = self.channel.max_message_bytes
        body_bytes = len(payload)
        if self._settings.chunking:
            if body_bytes > message_bytes_max and self._chunk_bytes(len(encoded)) < CHUNK_BYTES_MIN:
                raise MessageTooLarge(len(encoded), message_bytes_max)
            body_bytes = min(body_bytes, message_bytes_max)
        if body_bytes > message_bytes_max and self._compressor is not None:
            # Compressed once more when it leaves: large messages that shrink so far are rare.
            body_bytes = len(self._compressor.compress(payload))
        if body_bytes > message_bytes_max:
            raise MessageTooLarge(body_bytes, message_bytes_max)
        if body_bytes + len(encoded) > message_bytes_max + METADATA_BYTES_MAX:
            raise MessageTooLarge(body_bytes + len(encoded), message_bytes_max + METADATA_BYTES_MAX)

    def send_batches(self) -> None:
        """Send the open batches now."""
        if self._open is None or self._open.is_empty:
            return
        self._set_timer(None)
        self._leaves_at_once = False
        for batch in self._open.take():
            self._send(batch)

    def _set_timer(self, timer: asyncio.Handle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    def _send(self, batch: Batch) -> None:
        sequence_ids = number(batch, self.last_sequence_id + 1)
        first, last = sequence_ids[0], sequence_ids[-1]
        self._next_sequence_id = max(self.last_sequence_id, last) + 1
        metadata = MessageMetadata(
            producer_name=self.channel.name,
            sequence_id=first,
            publish_time=self._clock.wall_ms(),
            schema_version=self.channel.schema_version,
        )
        messages = len(batch)
        self._last = batch
        if messages == 1:
            # A batch of one would be larger, and its message's id have an index that says nothing.
            if batch.attributes is not None:
                batch.attributes.describe(metadata)
            body = self._compressed(metadata, batch.payloads[0])
            if len(body) > self.channel.max_message_bytes:
                self._send_chunks(metadata, body, batch)
            else:
                self.channel.send(self._payload(metadata, body), first, batch)
            return
        metadata.num_messages_in_batch = messages
        metadata.highest_sequence_id = last
        if batch.attributes is not None:
            batch.attributes.describe_keys(metadata)
        body = encode_numbered_batch(batch.payloads, batch.encoded_attributes, sequence_ids)
        self.channel.send(
            self._payload(metadata, self._compressed(metadata, body)),
            first,
            batch,
            num_messages=messages,
            highest_sequence_id=last,
        )

    def _send_chunks(self, metadata: MessageMetadata, body: bytes, batch: Batch) -> None:
        """Send a message in chunks, each a payload of its own (PIP-37)."""
        metadata.uuid = f"{metadata.producer_name}-{metadata.sequence_id}"
        metadata.total_chunk_msg_size = len(body)
        if self._encryptor is not None:
            self._encryptor.describe(metadata)
        chunk_bytes = self._chunk_bytes(metadata.ByteSize())
        metadata.num_chunks_from_msg = batch.num_sends = -(-len(body) // chunk_bytes)
        batch.is_chunked = True
        for chunk_id in range(batch.num_sends):
            metadata.chunk_id = chunk_id
            chunk = body[chunk_id * chunk_bytes : (chunk_id + 1) * chunk_bytes]
            payload = self._payload(metadata, chunk)
            self.channel.send(payload, metadata.sequence_id, batch, is_chunk=True)

    def _chunk_bytes(self, metadata_bytes: int) -> int:
        """How much of a message has room in a chunk, beside so much metadata."""
        tag_bytes = 0 if self._encryptor is None else TAG_BYTES
        return self.channel.max_message_bytes - metadata_bytes - CHUNK_OVERHEAD_BYTES - tag_bytes

    def _payload(self, metadata: MessageMetadata, body: bytes) -> bytes:
        """What the broker stores, encrypted if it is to be."""
        if self._encryptor is not None:
            if not metadata.encryption_keys:
                self._encryptor.describe(metadata)
            body = self._encryptor.encrypt(metadata, body)
        return encode_payload(metadata, body)

    def _compressed(self, metadata: MessageMetadata, body: bytes) -> bytes:
        """The body, compressed where that makes it smaller; ``metadata`` then says how."""
        if self._compressor is not None:
            compressed = self._compressor.compress(body)
            if len(compressed) < len(body):
                metadata.compression = self._compressor.type
                metadata.uncompressed_size = len(body)
                return compressed
        return body

    # ---- what becomes of it

    def _settled(
        self, batch: Batch, message_id: MessageIdData | None, error: ClientError | None
    ) -> None:
        """A payload is stored, or is not as far as the client knows."""
        stored = None if message_id is None else from_proto(message_id, self._partition)
        if batch.is_chunked:
            batch.error = error = batch.error or error
            batch.first_chunk = batch.first_chunk or stored
            batch.num_sends -= 1
            if batch.num_sends:
                return
            if stored is not None:
                stored = replace(stored, first_chunk=batch.first_chunk)
        self._tell(batch, None if error is not None else stored, error)
        if batch is self._last:
            self._last = None
        while self._flushing and self._flushing[0][0] is batch:
            flushed = self._flushing.pop(0)[1]
            if not flushed.done():
                flushed.set_result(None)
        self._window.release(len(batch), batch.payload_bytes)

    def _tell(self, batch: Batch, stored: MessageId | None, error: ClientError | None) -> None:
        """Call the callbacks of a batch; what has none is reported only where it is not stored."""
        messages = len(batch)
        for index, callback in batch.callbacks:
            message_id = stored
            if stored is not None and messages > 1:
                message_id = MessageId(
                    stored.ledger_id, stored.entry_id, index, stored.partition, messages
                )
            try:
                callback(message_id, error)
            except Exception as raised:  # noqa: BLE001  # a user's code: other messages have theirs
                self._loop.call_exception_handler(
                    {
                        "message": f"a send callback of {self.channel.topic} raised",
                        "exception": raised,
                    }
                )
        if error is not None and messages > len(batch.callbacks):
            self._on_failure(error, messages - len(batch.callbacks))

    async def flush(self) -> None:
        """Send what is there, and wait until it and all before it is stored or has failed."""
        if self._starting is not None:
            await asyncio.wait([self._starting])
        self.send_batches()
        if self._last is not None:
            flushed: asyncio.Future[None] = self._loop.create_future()
            self._flushing.append((self._last, flushed))
            await flushed

    # ---- its end

    def _ended(self, error: ClientError) -> None:
        """No broker will take what has not left."""
        self._set_timer(None)
        if self._open is not None:
            for batch in self._open.take():
                self._tell(batch, None, error)
                self._window.release(len(batch), batch.payload_bytes)
        self._on_end(error)

    async def close(self) -> None:
        """Wait a while for the receipts of what was sent, then leave the broker."""
        if self._starting is not None:
            await asyncio.wait([self._starting], timeout=self._settings.close_timeout_s)
        self.send_batches()
        await self.channel.close()
