"""Proves that messages are found by their index, and the last one, as far as the log has them."""

from __future__ import annotations

import pytest
from tests.unit.geminga_broker.clients_and_logs import MemoryLog

from geminga_broker.errors import StorageUnavailable
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.log_browser import last_message, message_with_index
from geminga_broker.managed_ledger.positions import EARLIEST, Entry, Position
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_broker_entry, encode_payload

# Messages of each entry, and the index of the last; the third is a marker, which has one too.
ENTRIES = [(3, 102), (2, 104), (0, 105), (1, 106), (4, 110)]


class IndexedLog(MemoryLog):
    """One whose entries are ``ENTRIES``."""

    def entry(self, entry_id: int) -> Entry:
        messages, index = ENTRIES[entry_id]
        metadata = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        if messages:
            metadata.num_messages_in_batch = messages
        else:
            metadata.marker_type = 10
        stamp = encode_broker_entry(api.BrokerEntryMetadata(index=index))
        return entry_id, stamp + encode_payload(metadata, b""), 0


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (-1, None),
        (0, EARLIEST),
        (99, EARLIEST),
        (100, Position(7, 0)),
        (102, Position(7, 0)),
        (103, Position(7, 1)),
        (105, Position(7, 3)),
        (106, Position(7, 3)),
        (107, Position(7, 4)),
        (110, Position(7, 4)),
        (111, None),
    ],
)
async def test_a_message_is_found_by_its_index(index: int, expected: Position | None) -> None:
    log = IndexedLog((7, len(ENTRIES)))
    assert await message_with_index(log, index) == expected


async def test_an_empty_log_has_no_message() -> None:
    assert await message_with_index(IndexedLog((7, 0)), 0) is None


class TrimmedLog(MemoryLog):
    """One that has no entry left, but for ``left`` in another ledger, when the last one is read."""

    def __init__(self, *, left: int) -> None:
        super().__init__((7, 3))
        self.is_cold = True
        self.left = left

    async def read(self, position: Position, count_max: int) -> list[Entry]:
        if position.ledger_id == 7 and self.chain.span(7) is not None:
            self.chain.append(LedgerSpan(8, self.left))
            self.chain.remove(7)
            raise StorageUnavailable("ledger 7 was trimmed")
        return await super().read(position, count_max)


@pytest.mark.parametrize(("left", "last"), [(0, EARLIEST), (2, Position(8, 1))])
async def test_the_last_message_is_looked_for_again_where_it_was_trimmed_just_then(
    left: int, last: Position
) -> None:
    assert await last_message(TrimmedLog(left=left)) == (last, -1)


class UnreadableLog(MemoryLog):
    """One whose bookies do not answer."""

    async def read(self, position: Position, count_max: int) -> list[Entry]:
        raise StorageUnavailable(f"no bookie gives {count_max} from {position} on")


async def test_a_last_message_that_cannot_be_read_is_not_looked_for_for_ever() -> None:
    log = UnreadableLog((7, 3))
    log.is_cold = True
    with pytest.raises(StorageUnavailable):
        await last_message(log)
