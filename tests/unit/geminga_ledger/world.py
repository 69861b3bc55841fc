"""Everything a ledger needs, in memory: ZooKeeper, a network, bookies, virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from tests.unit.geminga_ledger.fake_bookie import FakeBookie
from tests.unit.geminga_ledger.fake_network import FakeNetwork

from geminga_ledger import LedgerConfig, LedgerError, Ledgers
from geminga_protocol.bookkeeper.digest import encode_entry_header, master_key
from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH, BookieInfo
from geminga_protocol.records.ledgers.ledger_metadata import Fragment, LedgerMetadata, ledger_path
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.zookeeper.interception import InstantSession

KEY = master_key(b"")
FIRST_PORT = 3181
# Longer than an instant, shorter than anything that a timer waits for.
INSTANT_S = 0.000_001


@dataclass
class Listener:
    """Remembers what the writer told it."""

    confirmations: list[int] = field(default_factory=list)
    failures: list[LedgerError] = field(default_factory=list)

    def entries_confirmed(self, last_confirmed: int) -> None:
        self.confirmations.append(last_confirmed)

    def writer_failed(self, error: LedgerError) -> None:
        self.failures.append(error)


class World:
    """``bookies`` are b0, b1, … at ports from 3181 on, registered in ZooKeeper."""

    def __init__(self, bookie_count: int = 0) -> None:
        self.coordination = InstantSession()
        self.network = FakeNetwork()
        self.clock = SimulatedClock()
        self.coordination.zookeeper.put(AVAILABLE_PATH)
        self.bookies: list[FakeBookie] = []
        self.add_bookies(bookie_count)

    def add_bookies(self, count: int) -> None:
        for _ in range(count):
            number = len(self.bookies)
            self.bookies.append(FakeBookie(f"b{number}", self.network, FIRST_PORT + number))
            self.register(number, FIRST_PORT + number)

    def register(self, number: int, port: int) -> None:
        value = BookieInfo.of_address("127.0.0.1", port).encode()
        self.coordination.zookeeper.put(f"{AVAILABLE_PATH}/b{number}", value)

    def unregister(self, number: int) -> None:
        self.coordination.zookeeper.remove(f"{AVAILABLE_PATH}/b{number}")

    def ledgers(self, config: LedgerConfig | None = None, *, seed: int = 1) -> Ledgers:
        """A new client, to be opened with ``async with``."""
        return Ledgers(self.coordination, self.network, self.clock, Random(seed), config)

    def bookie(self, bookie_id: str) -> FakeBookie:
        return next(each for each in self.bookies if each.bookie_id == bookie_id)

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        return LedgerMetadata.decode(
            self.coordination.zookeeper.tree.get(ledger_path(ledger_id))[0]
        )

    def put_metadata(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        self.coordination.zookeeper.put(ledger_path(ledger_id), metadata.encode())

    def left_behind(
        self,
        ledger_id: int,
        quorum: tuple[int, int, int],
        holders: Mapping[int, tuple[int, ...]],
        *,
        told: Mapping[int, int] | None = None,
    ) -> None:
        """An open ledger on b0, b1, … whose writer is gone.

        ``holders`` says which bookies have each entry. ``told`` is what an entry says was
        confirmed, where that is not the entry before it.
        """
        ensemble_size, write_quorum, ack_quorum = quorum
        fragment = Fragment(0, tuple(f"b{number}" for number in range(ensemble_size)))
        self.put_metadata(
            ledger_id,
            LedgerMetadata(
                ensemble_size=ensemble_size,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                fragments=(fragment,),
            ),
        )
        for entry_id, numbers in holders.items():
            last_confirmed = (told or {}).get(entry_id, entry_id - 1)
            for number in numbers:
                self.bookies[number].store(
                    ledger_id, entry_id, entry_of(ledger_id, entry_id, last_confirmed), KEY
                )


def payload_of(entry_id: int) -> bytes:
    """The payload that tests give an entry: ten bytes."""
    return b"entry-%04d" % entry_id


def entry_of(ledger_id: int, entry_id: int, last_confirmed: int) -> bytes:
    """A whole entry, as a writer of ``payload_of`` payloads makes it."""
    payload = payload_of(entry_id)
    length = 10 * (entry_id + 1)
    return encode_entry_header(ledger_id, entry_id, last_confirmed, length, payload) + payload


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until ``condition`` holds; virtual time goes on meanwhile."""
    async with asyncio.timeout(600):
        while not condition():  # noqa: ASYNC110 - any condition, in virtual time
            await asyncio.sleep(0.001)


async def settle() -> None:
    """Let everything happen that needs no time."""
    await asyncio.sleep(INSTANT_S)
