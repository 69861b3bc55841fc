"""A raw client that writes down what it says and hears: any command, any bytes, over one socket.

It answers PING, resends nothing, and does nothing of its own accord.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from google.protobuf.message import Message
from tests.differential.patience import patient, pause
from tests.differential.transcript import Transcript

from geminga_protocol.framing import FrameReader
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import PART_NAMES, PONG, encode_command, parse_command
from geminga_protocol.pulsar.messages.payload import encode_batch, encode_payload
from geminga_protocol.pulsar.send import encode_send

FRAME_BYTES_MAX = 64 * 1024 * 1024
READ_BYTES = 1 << 16
PROTOCOL_VERSION = 21
# How long an answer may take; and how long nothing must come before we believe that nothing will.
ANSWER_S = 6.0
SILENCE_S = 0.4
# Never a message's real time: what depends on it is not compared.
PUBLISH_TIME_MS = 1_700_000_000_000

_NUMBERS = {
    field.message_type.full_name: field.number
    for field in api.BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}


class Arrival(NamedTuple):
    """What came: a command with the payload behind it, or None for the end of the connection."""

    command: api.BaseCommand | None
    payload: bytes = b""


def enclosed(part: Message) -> api.BaseCommand:
    """The whole command that ``part`` is the part of."""
    number = _NUMBERS[part.DESCRIPTOR.full_name]
    command = api.BaseCommand(type=cast(Any, number))
    getattr(command, PART_NAMES[number]).CopyFrom(part)
    return command


def part_of(command: api.BaseCommand) -> Message:
    """The part of a command that its type names."""
    return cast("Message", getattr(command, PART_NAMES[command.type]))


class WireClient:
    """One connection. All waiting ends; that nothing came is written down like an answer."""

    def __init__(self, name: str, service_url: str, transcript: Transcript) -> None:
        self.name = name
        self._address = urlsplit(service_url)
        self._transcript = transcript
        self._inbox: list[Arrival] = []
        self._arrived = asyncio.Condition()
        self._last_request_id = 0
        self._reading: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_over = False

    async def open(self) -> None:
        """Connect the socket, and say nothing."""
        reader, self._writer = await asyncio.open_connection(
            self._address.hostname, self._address.port
        )
        self._reading = asyncio.create_task(self._read(reader))

    async def close(self) -> None:
        """Close the connection without a word, as a client does that dies."""
        if self._reading is not None and self._writer is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._writer.close()
            await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)
            self._reading = None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader(FRAME_BYTES_MAX)
        try:
            while chunk := await reader.read(READ_BYTES):
                buffer, bounds = frames.feed(chunk)
                for start, end in bounds:
                    command, payload_start = parse_command(buffer, start, end)
                    if command.type == api.BaseCommand.PING:
                        self.write(PONG)
                    else:
                        self._inbox.append(Arrival(command, buffer[payload_start:end]))
                async with self._arrived:
                    self._arrived.notify_all()
        except ConnectionError:
            pass
        self._inbox.append(Arrival(None))
        self._is_over = True
        async with self._arrived:
            self._arrived.notify_all()

    # Saying

    def write(self, content: bytes) -> None:
        """Send these bytes, and write nothing down."""
        assert self._writer is not None
        self._writer.write(content)

    def request_id(self) -> int:
        """A request id not used before on this connection."""
        self._last_request_id += 1
        return self._last_request_id

    def post(self, *parts: Message) -> None:
        """Send commands, and do not wait for an answer. The broker gets them in one piece: the last
        is there while it is still busy with the first."""
        commands = list(map(enclosed, parts))
        for command in commands:
            self._transcript.said(self.name, command)
        self.write(b"".join(map(encode_command, commands)))

    async def ask(self, part: Message) -> api.BaseCommand | None:
        """Send a command with a fresh request id; returns its answer, whatever that is."""
        request_id = self.request_id()
        cast(Any, part).request_id = request_id
        self.post(part)
        return await self.heard(
            lambda command: getattr(part_of(command), "request_id", None) == request_id
        )

    # Hearing

    async def heard(
        self, is_wanted: Callable[[api.BaseCommand], bool], timeout_s: float = ANSWER_S
    ) -> api.BaseCommand | None:
        """The first command that is wanted; what came before it waits to be taken."""

        def found() -> bool:
            return any(each.command is None or is_wanted(each.command) for each in self._inbox)

        if not await self._wait(lambda: found() or self._is_over, timeout_s) or not found():
            self._transcript.heard_nothing(self.name)
            return None
        index = next(
            index
            for index, each in enumerate(self._inbox)
            if each.command is None or is_wanted(each.command)
        )
        return self._write_down(self._inbox.pop(index))

    async def take(self, count: int, timeout_s: float = ANSWER_S) -> list[api.BaseCommand]:
        """The next ``count`` commands, in the order in which they came; fewer if no more come."""
        is_whole = await self._wait(lambda: len(self._inbox) >= count or self._is_over, timeout_s)
        taken = [self._inbox.pop(0) for _ in range(min(count, len(self._inbox)))]
        commands = [command for each in taken if (command := self._write_down(each)) is not None]
        if not is_whole:
            self._transcript.heard_nothing(self.name)
        return commands

    async def silence(self, seconds: float = SILENCE_S) -> None:
        """Wait so long; write down what came all the same, or that nothing did."""
        await pause(seconds)
        if not self._inbox:
            self._transcript.heard_nothing(self.name)
        self.leftovers()

    def arrivals(self) -> list[Arrival]:
        """Take all that came so far, and write nothing down."""
        taken, self._inbox = self._inbox, []
        return taken

    def leftovers(self, *, but_not: int | None = None) -> None:
        """Write down what came and was not taken, but commands of the type ``but_not``."""
        for each in self.arrivals():
            if each.command is None or each.command.type != but_not:
                self._write_down(each)

    async def _wait(self, is_true: Callable[[], bool], timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(patient(timeout_s)), self._arrived:
                await self._arrived.wait_for(is_true)
        except TimeoutError:
            return is_true()
        return True

    def _write_down(self, arrival: Arrival) -> api.BaseCommand | None:
        self._transcript.heard(self.name, *arrival)
        return arrival.command

    # What clients usually say

    async def connect(self, **fields: Any) -> api.BaseCommand | None:
        """CONNECT, with other fields where given."""
        usual: dict[str, Any] = {"client_version": "raw", "protocol_version": PROTOCOL_VERSION}
        self.post(api.CommandConnect(**(usual | fields)))
        return await self.heard(lambda _: True)

    async def ping(self) -> None:
        """PING, and wait for the PONG."""
        self.write(encode_command(enclosed(api.CommandPing())))
        await self._wait(lambda: self._take_pong() or self._is_over, ANSWER_S)

    def _take_pong(self) -> bool:
        for index, each in enumerate(self._inbox):
            if each.command is not None and each.command.type == api.BaseCommand.PONG:
                del self._inbox[index]
                return True
        return False

    def send(
        self, producer_id: int, sequence_id: int, body: bytes | str = b"", **metadata: Any
    ) -> None:
        """SEND one message; ``metadata`` are fields of MessageMetadata."""
        content = body.encode() if isinstance(body, str) else body
        filled = _metadata(sequence_id, metadata)
        self.send_payload(producer_id, sequence_id, encode_payload(filled, content))

    def send_batch(
        self,
        producer_id: int,
        sequence_id: int,
        bodies: Sequence[str],
        keys: Sequence[str] = (),
        **metadata: Any,
    ) -> None:
        """SEND a batch of messages with consecutive sequence ids, each with its key if given."""
        highest = sequence_id + len(bodies) - 1
        messages = [
            api.SingleMessageMetadata(sequence_id=sequence_id + index)
            for index in range(len(bodies))
        ]
        for message, key in zip(messages, keys, strict=False):
            message.partition_key = key
        batch = encode_batch(
            (message, body.encode()) for message, body in zip(messages, bodies, strict=True)
        )
        filled = _metadata(
            sequence_id,
            {"num_messages_in_batch": len(bodies), "highest_sequence_id": highest} | metadata,
        )
        payload = encode_payload(filled, batch)
        self.send_payload(
            producer_id, sequence_id, payload, num_messages=len(bodies), highest=highest
        )

    def send_payload(
        self,
        producer_id: int,
        sequence_id: int,
        payload: bytes,
        *,
        num_messages: int = 1,
        highest: int = 0,
    ) -> None:
        """SEND with this payload, whatever it is."""
        self._transcript.sent(self.name, producer_id, sequence_id, num_messages)
        self.write(
            encode_send(
                producer_id,
                sequence_id,
                len(payload),
                num_messages=num_messages,
                highest_sequence_id=highest,
            )
            + payload
        )

    async def receipts(self, count: int = 1) -> list[api.MessageIdData]:
        """The next so many SEND_RECEIPTs, or what comes instead of them; returns their ids."""
        kinds = (api.BaseCommand.SEND_RECEIPT, api.BaseCommand.SEND_ERROR)
        answers = [await self.heard(lambda each: each.type in kinds) for _ in range(count)]
        return [each.send_receipt.message_id for each in answers if each is not None]


def _metadata(sequence_id: int, fields: dict[str, Any]) -> api.MessageMetadata:
    usual: dict[str, Any] = {"producer_name": "raw", "publish_time": PUBLISH_TIME_MS}
    return api.MessageMetadata(sequence_id=sequence_id, **(usual | fields))
