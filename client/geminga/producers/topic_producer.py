"""Publishes to one topic or partition: numbers messages, makes payloads of them, reports the
outcome of each.

Its owner checks that the send window has a place for a message; the place is acquired and released
here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from geminga._channels.producer_channel import ProducerChannel
from geminga._channels.registry import Channels
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
)
from geminga.producers.send_window import SendWindow
from geminga_protocol.pulsar.api_pb2 import MessageIdData, MessageMetadata
from geminga_protocol.pulsar.frames import FRAME_OVERHEAD_BYTES
from geminga_protocol.pulsar.messages.payload import encode_numbered_batch, encode_payload
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.clock import Clock

# So much may keys and properties add to a message of the largest size: the overhead that brokers
# allow a frame, less what the command, the producer's name and the numbers take of it.
METADATA_BYTES_MAX = FRAME_OVERHEAD_BYTES - 1024

# What a chunk has besides its share of the message and the metadata that all chunks have: checksum
# and size (10 bytes), number of chunks and the chunk's own (14 at most).
CHUNK_OVERHEAD_BYTES = 24
# A message whose attributes leave less than this for the body in each chunk is refused.
CHUNK_BYTES_MIN = 1024


class _EarlyMessage(NamedTuple):
    """The arguments of ``submit`` for a message that came before a broker accepted its producer."""

    payload: bytes
    attributes: MessageAttributes | None
    sequence_id: int | None
    callback: SendCallback | None
    at_once: bool


# A message is in one of three places, in this order, and holds its place in the window in all of
# them: ``_early`` (no broker has accepted the part yet), ``_open`` (its batch has not left),
# ``channel.pending`` (it has no receipt). None overtakes another: whatever sends calls
# ``send_batches`` first.
class TopicProducer:
    """The part of a producer that publishes to one topic or partition.

    ``on_failure`` is called with an error and how many messages without a callback it concerns;
    ``on_end`` once no broker will take anything more. A part that is not opened asks a broker to
    accept it with its first message; messages wait until then, and fail if no broker does.
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
        # ``None`` until the first message is numbered: the broker may know earlier ones.
        self._next_sequence_id: int | None = None
        # ``None`` where each message leaves alone.
        self._open = None if settings.batching is None else OpenBatches(settings.batching)
        self._compressor = compressor(settings.compression)
        self._encryptor = (
            Encryptor(settings.encryption, clock.monotonic) if settings.encryption else None
        )
        # Sends the open batches: at the end of this turn of the loop, or after their ``delay_s``.
        self._timer: asyncio.Handle | None = None
        self._leaves_at_once = False
        # The last batch that was sent and is not settled: batches are settled in their order, so
        # that all are when it is. Calls of ``flush`` wait each for the one that was last then.
        self._last: Batch | None = None
        self._flushing: list[tuple[Batch, asyncio.Future[None]]] = []
        # The messages that wait until a broker has accepted the channel, bounded by the window, and
        # the task that asks one. ``None`` once a broker has.
        self._early: deque[_EarlyMessage] | None = deque()
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
        # Only now: while the channel is being opened, its end is the error that ``open`` raises.
        self.channel.on_end = self._ended
        if self.channel.error is not None:  # it ended in the turn in which it was accepted
            self._ended(self.channel.error)
        # From here on ``submit`` numbers messages: the broker has said which number was the last.
        early, self._early = self._early or (), None
        for each in early:
            try:
                self.submit(*each[:-1], at_once=each.at_once)
            except ClientError as error:  # it is too large for this broker
                self._tell_early(each, error)
        # Their places are released only now, after ``submit`` has acquired them once more: a caller
        # that waits for a place would overtake them.
        self._window.release(len(early), sum(len(each.payload) for each in early))

    def _begin_to_start(self) -> None:
        self._starting = self._channels.spawn(self._start(), name=f"start {self.channel.title}")
        # The task may be cancelled before its first step, so that no ``finally`` in it would run.
        self._starting.add_done_callback(self._start_ended)

    async def _start(self) -> None:
        """Open the part for the messages that wait; after a failure the next one tries again."""
        try:
            await self.open()
        except ClientError as error:
            if not isinstance(error, Closed):
                # A channel that has ended cannot be opened again; the next message tries with
                # another one.
                self.channel = self._new_channel()
            self._fail_early(error)

    def _start_ended(self, start: asyncio.Task[object]) -> None:
        self._starting = None
        if not self._early:
            return
        if start.cancelled():  # the client is closed
            self._fail_early(Closed(self.channel.title))
        else:
            # Messages that callbacks of failed ones have sent.
            self._begin_to_start()

    def _fail_early(self, error: ClientError) -> None:
        # Emptied first: a callback below may send another message, which then waits for the next
        # start.
        early, self._early = self._early or (), deque()
        for each in early:
            # The place first: its callback may send another message at once.
            self._window.release(1, len(each.payload))
            self._tell_early(each, error)

    def _tell_early(self, early: _EarlyMessage, error: ClientError) -> None:
        callbacks = [] if early.callback is None else [(0, early.callback)]
        self._tell(Batch(None, [early.payload], [b""], callbacks=callbacks), None, error)

    @property
    def last_sequence_id(self) -> int:
        """The sequence id of the last message that left; -1 before the first."""
        if self._next_sequence_id is not None:
            return self._next_sequence_id - 1
        initial = self._settings.initial_sequence_id
        return self.channel.last_sequence_id if initial is None else initial

    @property
    def has_open_batch(self) -> bool:
        """Is there a batch that has not been sent yet?"""
        return self._open is not None and bool(self._open.batches)

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
        """Take a message; it leaves with its batch, or ``at_once``: at the end of this turn.

        Raises ``MessageTooLarge``, or the error that ended the channel; ``callback`` is not called
        then.
        """
        # HOT, for messages with attributes; plain ones mostly go by ``submit_plain``.
        channel = self.channel
        if channel.error is not None:
            raise channel.error
        encoded = b"" if attributes is None else attributes.encode_for_batch()
        if self._early is not None:
            # Attributes that cannot be encoded are refused now, as they are later: the start, which
            # submits the message again, could tell its caller nothing of it.
            if attributes is not None and attributes.goes_alone:
                attributes.describe(MessageMetadata())
            # Their order is kept: ``open`` submits them one by one.
            self._early.append(_EarlyMessage(payload, attributes, sequence_id, callback, at_once))
            self._window.acquire(len(payload))
            if self._starting is None:
                self._begin_to_start()
            return
        message_bytes = len(payload) + len(encoded)
        batches = self._open
        if (
            batches is None
            or message_bytes >= channel.max_message_bytes
            or (attributes is not None and attributes.goes_alone)
        ):
            self._submit_alone(payload, attributes, encoded, sequence_id, callback)
            return
        # What is open leaves before a message that does not fit to it, and never behind it.
        if not batches.has_room(message_bytes) or not (
            sequence_id is None or batches.may_be_numbered(sequence_id)
        ):
            self.send_batches()
        if not batches.batches:
            # Asked for anew with each batch: the next broker may allow less.
            batches.begin(channel.max_message_bytes)
        batches.add(payload, attributes, encoded, callback, sequence_id)
        self._window.acquire(message_bytes)
        if batches.is_full:
            self.send_batches()
        # At the end of the turn, so that calls of the same turn share one batch.
        elif at_once and not self._leaves_at_once:
            self._leaves_at_once = True
            self._set_timer(self._loop.call_soon(self.send_batches))
        elif self._timer is None:
            assert self._settings.batching is not None
            self._timer = self._loop.call_later(self._settings.batching.delay_s, self.send_batches)

    def submit_plain(self, payload: bytes, callback: SendCallback | None) -> None:
        """Take a message without attributes, as ``submit`` does, but faster if a batch is open."""
        # HOT
        if self._open is not None and self._open.add_plain(payload, callback):
            self._window.acquire(len(payload))
        else:
            self.submit(payload, None, None, callback)

    def submit_batch(self, batch: Batch) -> None:
        """Send a batch that its owner has cut and numbered, behind those that came before it.

        The owner must not call it once the channel has ended (``on_end``). Raises
        ``MessageTooLarge``; callbacks are not called then.
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
        # Everything that can be refused is refused first: nothing has been numbered, counted or
        # sent.
        self._check_size(payload, encoded)
        if attributes is not None and attributes.goes_alone:
            # Raises for attributes that cannot be encoded, before anything is changed.
            attributes.describe(MessageMetadata())
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
            # A chunk is never larger; whether its attributes fit is checked last.
            body_bytes = min(body_bytes, message_bytes_max)
        if body_bytes > message_bytes_max and self._compressor is not None:
            # It is compressed once more when it is sent: large messages that shrink so far are
            # rare.
            body_bytes = len(self._compressor.compress(payload))
        if body_bytes > message_bytes_max:
            raise MessageTooLarge(body_bytes, message_bytes_max)
        if body_bytes + len(encoded) > message_bytes_max + METADATA_BYTES_MAX:
            raise MessageTooLarge(body_bytes + len(encoded), message_bytes_max + METADATA_BYTES_MAX)

    def send_batches(self) -> None:
        """Send the open batches now."""
        if self._open is None or not self._open.batches:
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
        """Number a batch, and hand it to the channel as one payload, or as several chunks."""
        sequence_ids: Sequence[int] | None = batch.sequence_ids
        if sequence_ids is None:
            following = self.last_sequence_id + 1
            sequence_ids = range(following, following + len(batch))
        first, last = sequence_ids[0], sequence_ids[-1]
        # Numbers never go back, also when the user gives a lower one: a topic that deduplicates
        # would drop the messages behind it.
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
            # A batch of one would be larger, and give its message's id a batch index.
            if batch.attributes is not None:
                batch.attributes.describe(metadata)
            body = self._compressed(metadata, batch.payloads[0])
            if len(body) > self.channel.max_message_bytes:
                self._send_chunks(metadata, body, batch)
            else:
                self.channel.send(self._payload(metadata, body), first, batch)
            return
        metadata.num_messages_in_batch = messages
        # A topic that deduplicates notes this one as the producer's last, and knows the batch by
        # the first.
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
        # Measured with everything that all chunks have in common, the encrypted keys included.
        chunk_bytes = self._chunk_bytes(metadata.ByteSize())
        # Rounded up.
        metadata.num_chunks_from_msg = batch.num_sends = -(-len(body) // chunk_bytes)
        batch.is_chunked = True
        for chunk_id in range(batch.num_sends):
            metadata.chunk_id = chunk_id
            chunk = body[chunk_id * chunk_bytes : (chunk_id + 1) * chunk_bytes]
            # Encrypted one by one, since a consumer decrypts each chunk before it joins them.
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

    # ---- outcomes

    def _settled(
        self, batch: Batch, message_id: MessageIdData | None, error: ClientError | None
    ) -> None:
        """Report a payload that is stored, or that is not as far as the client knows."""
        stored = None if message_id is None else from_proto(message_id, self._partition)
        if batch.is_chunked:
            # The outcome of the message is that of its last chunk, or the first error of one.
            batch.error = error = batch.error or error
            batch.first_chunk = batch.first_chunk or stored
            # Each chunk has a receipt; the message is settled with the last one.
            batch.num_sends -= 1
            if batch.num_sends:
                return
            if stored is not None:
                stored = replace(stored, first_chunk=batch.first_chunk)
        self._tell(batch, None if error is not None else stored, error)
        if batch is self._last:
            self._last = None
        # Behind the callbacks, which a caller of ``flush`` expects to have been called.
        while self._flushing and self._flushing[0][0] is batch:
            flushed = self._flushing.pop(0)[1]
            if not flushed.done():
                flushed.set_result(None)
        # Last: it may admit waiters, whose messages are then sent within this call.
        self._window.release(len(batch), batch.payload_bytes)

    def _tell(self, batch: Batch, stored: MessageId | None, error: ClientError | None) -> None:
        """Call the callbacks of a batch. Messages without one are reported where they failed."""
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
        """Send the open batches, and wait until everything sent before is stored or has failed."""
        if self._starting is not None:
            await asyncio.wait([self._starting])
        self.send_batches()
        # Receipts come in the order of sending, so that one future for the last batch is enough.
        if self._last is not None:
            flushed: asyncio.Future[None] = self._loop.create_future()
            self._flushing.append((self._last, flushed))
            await flushed

    # ---- its end

    def _ended(self, error: ClientError) -> None:
        """Fail the open batches: no broker will take them. The channel has failed what was sent."""
        self._set_timer(None)
        if self._open is not None:
            for batch in self._open.take():
                self._tell(batch, None, error)
                self._window.release(len(batch), batch.payload_bytes)
        self._on_end(error)

    async def close(self) -> None:
        """Wait up to ``close_timeout_s`` for receipts of what was sent, then leave the broker."""
        # Messages that wait for the start are sent if it comes in time; else they fail with the end
        # of the channel.
        if self._starting is not None:
            # ``wait`` neither raises what the task raised nor cancels it.
            await asyncio.wait([self._starting], timeout=self._settings.close_timeout_s)
        self.send_batches()
        await self.channel.close()
