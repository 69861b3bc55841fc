"""What a bookie in memory answers over V3: long polls, and what writers say is confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from struct import unpack_from
from typing import TYPE_CHECKING

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.availability import encode_availability, runs_of
from geminga_protocol.bookkeeper.v3 import encode_frame, make_response, parse_request

if TYPE_CHECKING:
    from tests.unit.geminga_ledger.fake_bookie import FakeBookie

# The first byte of a V3 frame: the field number and type of its header.
FIRST_BYTE = 0x0A
_LAC_OFFSET = 16
_EXPLICIT_LAC_OFFSET = 8

Write = Callable[[bytes], None]


class FakeV3:
    """Answers for ``bookie``. ``refusals`` are statuses by operation."""

    def __init__(self, bookie: FakeBookie) -> None:
        self.requests: list[pb.Request] = []
        self.refusals: dict[int, pb.StatusCode.ValueType] = {}
        self.explicit_lacs: dict[int, bytes] = {}
        # Readers that wait: what they asked, where to answer.
        self.waiting: list[tuple[pb.Request, Write]] = []
        self._bookie = bookie

    def count(self, operation: pb.OperationType.ValueType) -> int:
        """How many such requests came."""
        return sum(each.header.operation == operation for each in self.requests)

    def take(self, frame: bytes, write: Write) -> None:
        """Answer now or later; not at all while the bookie is silent."""
        request = parse_request(frame)
        self.requests.append(request)
        if self._bookie.is_silent:
            return
        operation = request.header.operation
        refusal = self.refusals.get(operation)
        if refusal is not None:
            write(encode_frame(make_response(request, refusal)))
        elif operation == pb.READ_ENTRY:
            self._poll(request, write)
        elif operation == pb.READ_LAC:
            write(encode_frame(self._read_lac(request)))
        elif operation == pb.GET_LIST_OF_ENTRIES_OF_LEDGER:
            write(encode_frame(self._list_entries(request)))
        else:
            assert operation == pb.WRITE_LAC
            asked = request.writeLacRequest
            self.explicit_lacs[asked.ledgerId] = asked.body
            write(encode_frame(make_response(request)))
            self.news(asked.ledgerId)

    def news(self, ledger_id: int) -> None:
        """More may be confirmed: tell those who wait for that."""
        for request, write in list(self.waiting):
            asked = request.readRequest
            if asked.ledgerId == ledger_id and self._lac(ledger_id) > asked.previousLAC:
                self.waiting.remove((request, write))
                write(encode_frame(self._told(request)))

    def _list_entries(self, request: pb.Request) -> pb.Response:
        entries = self._bookie.entries.get(request.getListOfEntriesOfLedgerRequest.ledgerId)
        if not entries:
            return make_response(request, pb.ENOLEDGER)
        response = make_response(request)
        answer = response.getListOfEntriesOfLedgerResponse
        answer.availabilityOfEntriesOfLedger = encode_availability(runs_of(sorted(entries)))
        return response

    def _poll(self, request: pb.Request, write: Write) -> None:
        asked = request.readRequest
        assert asked.entryId == -1
        assert asked.flag == pb.ReadRequest.ENTRY_PIGGYBACK
        if not self._bookie.entries.get(asked.ledgerId):
            write(encode_frame(make_response(request, pb.ENOLEDGER)))
        elif self._lac(asked.ledgerId) > asked.previousLAC:
            write(encode_frame(self._told(request)))
        else:
            self.waiting.append((request, write))
            over = partial(self._over, request, write)
            asyncio.get_running_loop().call_later(asked.timeOut / 1000, over)

    def _over(self, request: pb.Request, write: Write) -> None:
        if (request, write) in self.waiting:
            self.waiting.remove((request, write))
            if not self._bookie.is_silent:
                write(encode_frame(self._told(request)))

    def _told(self, request: pb.Request) -> pb.Response:
        asked = request.readRequest
        response = make_response(request)
        lac = response.readResponse.maxLAC = self._lac(asked.ledgerId)
        wanted = asked.previousLAC + 1
        if lac >= wanted and wanted in self._bookie.entries[asked.ledgerId]:
            response.readResponse.entryId = wanted
            response.readResponse.body = self._bookie.entries[asked.ledgerId][wanted]
        return response

    def _read_lac(self, request: pb.Request) -> pb.Response:
        ledger_id = request.readLacRequest.ledgerId
        entries = self._bookie.entries.get(ledger_id)
        if not entries:
            return make_response(request, pb.ENOENTRY)
        response = make_response(request)
        response.readLacResponse.lastEntryBody = entries[max(entries)]
        if ledger_id in self.explicit_lacs:
            response.readLacResponse.lacBody = self.explicit_lacs[ledger_id]
        return response

    def _lac(self, ledger_id: int) -> int:
        entries = self._bookie.entries[ledger_id]
        (lac,) = unpack_from(">q", entries[max(entries)], _LAC_OFFSET)
        explicit = self.explicit_lacs.get(ledger_id)
        if explicit is not None:
            lac = max(lac, *unpack_from(">q", explicit, _EXPLICIT_LAC_OFFSET))
        return int(lac)
