"""A network over which a writer's entries reach bookies as a Java client sends them: in V3, the
protocol of protobuf messages. Our own writers send entries over V2.

What else a connection carries, reads and fences, goes through as it is: bookies take both protocols
on one connection, frame by frame.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from tests.histories.listening import frames

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v2 import Flag, encode_add_response, is_v3, parse_request
from geminga_protocol.bookkeeper.v3 import encode_frame, parse_response
from geminga_protocol.bookkeeper.v3_requests import return_code_of
from geminga_runtime.network import Listener, Network, ProtocolT

SIZE_BYTES = 4
ADD = 1
HIGH_PRIORITY = 100


class AddsOverV3:
    """``network``, for one writer. ``answers`` counts those to adds, by their status."""

    def __init__(self, network: Network, answers: Counter[int]) -> None:
        self.answers = answers
        self._network = network

    async def connect(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """As ``Network.connect``."""
        made: list[ProtocolT] = []

        def stream() -> _Stream:
            made.append(factory())
            return _Stream(self, cast(asyncio.Protocol, made[0]))

        _, wrapped = await self._network.connect(stream, host, port)
        assert wrapped.outgoing is not None
        return wrapped.outgoing, made[0]

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        """As ``Network.listen``."""
        return await self._network.listen(factory, host, port)


class _Stream(asyncio.Protocol):
    """What comes from a bookie: answers to adds in V3 are told as if they were V2's."""

    def __init__(self, network: AddsOverV3, protocol: asyncio.Protocol) -> None:
        self.outgoing: _Outgoing | None = None
        self._network = network
        self._protocol = protocol
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.outgoing = _Outgoing(cast(asyncio.Transport, transport))
        self._protocol.connection_made(self.outgoing)

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def data_received(self, data: bytes) -> None:
        self._rest += data
        whole = list(frames(self._rest))
        self._rest = self._rest[sum(map(len, whole)) :]
        told = b"".join(map(self._as_v2, whole))
        if told:
            self._protocol.data_received(told)

    def _as_v2(self, frame: bytes) -> bytes:
        if not is_v3(frame, SIZE_BYTES, len(frame)):
            return frame
        response = parse_response(frame[SIZE_BYTES:])
        if response.header.operation != pb.ADD_ENTRY:
            return frame
        answer = response.addResponse
        self._network.answers[answer.status] += 1
        return encode_add_response(return_code_of(answer.status), answer.ledgerId, answer.entryId)


class _Outgoing(asyncio.Transport):
    """What the writer writes to: its adds leave as V3 requests."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._rest = b""
        self._sent = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._rest += bytes(data)
        whole = list(frames(self._rest))
        self._rest = self._rest[sum(map(len, whole)) :]
        if whole:
            self._transport.write(b"".join(map(self._as_v3, whole)))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def _as_v3(self, frame: bytes) -> bytes:
        if is_v3(frame, SIZE_BYTES, len(frame)):
            return frame
        operation, flags, ledger_id, entry_id, master_key, body_start = parse_request(
            frame, SIZE_BYTES, len(frame)
        )
        if operation != ADD:
            return frame
        assert master_key is not None
        self._sent += 1
        header = pb.BKPacketHeader(
            version=pb.VERSION_THREE, operation=pb.ADD_ENTRY, txnId=self._sent
        )
        if flags & Flag.HIGH_PRIORITY:
            header.priority = HIGH_PRIORITY
        request = pb.Request(header=header)
        asked = request.addRequest
        asked.ledgerId, asked.entryId = ledger_id, entry_id
        asked.masterKey, asked.body = master_key, frame[body_start:]
        if flags & Flag.RECOVERY_ADD:
            asked.flag = pb.AddRequest.RECOVERY_ADD
        return encode_frame(request)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
