"""Ledgers in ZooKeeper that come and go, and what a crash would leave at every single moment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from crc32c import crc32c
from tests.unit.geminga_bookie.fakes import (
    INSTANT_S,
    KEY,
    Client,
    make_add,
    make_entry,
)
from tests.unit.geminga_bookie.host import Host
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.bookie import Bookie
from geminga_bookie.config import GarbageConfig
from geminga_bookie.formats import entry_log_v1
from geminga_bookie.formats.index_v2 import Pair
from geminga_bookie.index.memory_store import MemoryStore
from geminga_protocol.bookkeeper.v2 import Flag, ReturnCode, encode_read
from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH
from geminga_protocol.records.ledgers.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    ledger_path,
)
from geminga_simulation.zookeeper.interception import InstantSession

# Nothing happens by itself unless a test wants it to.
NEVER = GarbageConfig(gc_interval_s=0)
PAYLOAD = b"payload" * 20


def register(
    coordination: InstantSession,
    ledger_id: int,
    *,
    ensemble: tuple[str, ...] = ("bookie-1",),
    state: LedgerState = LedgerState.OPEN,
) -> None:
    """Write the metadata of a ledger."""
    metadata = LedgerMetadata(
        ensemble_size=len(ensemble),
        write_quorum=1,
        ack_quorum=1,
        fragments=(Fragment(0, ensemble),),
        state=state,
    )
    coordination.zookeeper.put(ledger_path(ledger_id), metadata.encode())


def announce(coordination: InstantSession, *bookie_ids: str, parent: str = AVAILABLE_PATH) -> None:
    """Register other bookies."""
    for bookie_id in bookie_ids:
        coordination.zookeeper.put(f"{parent}/{bookie_id}", b"")


def unregister(coordination: InstantSession, ledger_id: int) -> None:
    """Delete a ledger, as its owner does."""
    coordination.zookeeper.remove(ledger_path(ledger_id))


async def add(bookie: Bookie, client: Client, ledger_id: int, first: int, count: int) -> None:
    """Add entries and carry them to the entry log."""
    adds = [make_add(ledger_id, first + number, PAYLOAD) for number in range(count)]
    answers = await client.ask(*adds)
    assert {answer[1] for answer in answers} == {0}
    await bookie.checkpointer.run()


async def require(client: Client, ledger_id: int, entries: range) -> None:
    """Fail unless these entries are read as they were written."""
    answers = await client.ask(*(encode_read(ledger_id, entry_id) for entry_id in entries))
    found = [(answer[1], answer[4]) for answer in answers]
    assert found == [(0, make_entry(ledger_id, entry_id, PAYLOAD)) for entry_id in entries]


async def code_of(client: Client, request: bytes) -> int:
    """What the bookie answers."""
    ((_, code, _, _, _),) = await client.ask(request)
    return code


async def require_fenced(client: Client, ledger_id: int) -> None:
    """Fail unless the ledger takes no more."""
    assert await code_of(client, make_add(ledger_id, 99)) == ReturnCode.EFENCED


async def fence(client: Client, ledger_id: int) -> None:
    """Fence a ledger, which may be empty."""
    await client.ask(encode_read(ledger_id, 0, int(Flag.FENCING), KEY))


def make_unknown(disk: MemoryDisk, name: str, offset: int) -> None:
    """Make the block there one of a kind that only a newer version knows."""
    content = disk.files[name].content
    seed = entry_log_v1.decode_file_header(name, bytes(content))
    assert seed is not None
    checked_end = offset + entry_log_v1.BLOCK_HEADER_BYTES - 4
    content[offset + 4] = 9
    content[checked_end : checked_end + 4] = crc32c(content[offset:checked_end], seed).to_bytes(
        4, "big"
    )


@dataclass(frozen=True, slots=True)
class Wreck:
    """What a crash at one moment leaves."""

    journal_files: dict[str, bytes]
    ledger_files: dict[str, bytes]
    index: list[Pair]

    def host(self, live: Host, *, with_index: bool = True) -> Host:
        """A machine that starts with it; ZooKeeper is as it was in the end."""
        host = Host(live.config)
        host.journal_disk = MemoryDisk(self.journal_files)
        host.ledger_disk = MemoryDisk(self.ledger_files)
        host.coordination = live.coordination.another()
        if with_index:
            host.store = MemoryStore()
            host.store.write(self.index)
        return host


class Moments:
    """Notes what a crash would leave before each change to the disks and the index of ``host``."""

    def __init__(self, host: Host, unsynced_bytes: int) -> None:
        self._host = host
        self._unsynced_bytes = unsynced_bytes
        self.wrecks: list[Wreck] = []
        host.ledger_disk.on_step = host.journal_disk.on_step = host.store.on_flush = self._note

    def _note(self) -> None:
        host = self._host
        after = [
            disk.after_crash(unsynced_bytes=self._unsynced_bytes).contents()
            for disk in (host.journal_disk, host.ledger_disk)
        ]
        self.wrecks.append(Wreck(after[0], after[1], sorted(host.store.flushed())))

    def end(self) -> None:
        """Note the last moment, and no more."""
        self._note()
        host = self._host
        host.ledger_disk.on_step = host.journal_disk.on_step = host.store.on_flush = lambda: None


async def settle() -> None:
    """Let what was begun come to its end."""
    await asyncio.sleep(INSTANT_S)
