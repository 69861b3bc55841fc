"""A writer in the middle of its work, for tests that do its bookies harm."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.unit.geminga_ledger.fake_bookie import FakeBookie
from tests.unit.geminga_ledger.world import Listener, World, payload_of, until

from geminga_ledger import LedgerConfig, Ledgers, LedgerWriter
from geminga_protocol.records.ledgers.ledger_metadata import Fragment

CONFIG = LedgerConfig()


class Bench:
    """A writer, its bookies in the order of its first ensemble, and those to spare."""

    def __init__(
        self, world: World, ledgers: Ledgers, writer: LedgerWriter, listener: Listener
    ) -> None:
        self.world = world
        self.ledgers = ledgers
        self.writer = writer
        self.listener = listener
        self.first = self.fragments[0].ensemble
        self.bookies: list[FakeBookie] = [world.bookie(bookie_id) for bookie_id in self.first]
        self.spare = [each for each in world.bookies if each.bookie_id not in self.first]

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        return self.world.metadata(self.writer.ledger_id).fragments

    @property
    def beginnings(self) -> list[int]:
        """The first entries of the fragments."""
        return [each.first_entry for each in self.fragments]

    def append(self, count: int) -> None:
        for _ in range(count):
            self.writer.append(payload_of(self.writer.last_pushed + 1))

    async def all_confirmed(self) -> None:
        await until(lambda: self.writer.last_confirmed == self.writer.last_pushed)

    async def replaced(self, slot: int) -> str:
        """Wait for a change of this slot; who is there now."""
        await until(lambda: self.writer.ensemble[slot] != self.first[slot])
        return self.writer.ensemble[slot]

    async def read_back(self) -> list[bytes]:
        reader = await self.ledgers.open(self.writer.ledger_id, recover=True)
        if reader.last_confirmed < 0:
            return []
        return await reader.read(0, reader.last_confirmed, bytes_max=1 << 20)


@asynccontextmanager
async def writing(
    sizes: tuple[int, int, int], *, spare: int = 1, config: LedgerConfig = CONFIG
) -> AsyncGenerator[Bench, None]:
    """A new writer whose bookies are connected."""
    ensemble_size, write_quorum, ack_quorum = sizes
    world, listener = World(ensemble_size + spare), Listener()
    async with world.ledgers(config) as ledgers:
        writer = await ledgers.create(
            listener=listener,
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
        )
        await until(lambda: all(link.is_connected for link in writer._links))
        yield Bench(world, ledgers, writer, listener)


def payloads(count: int) -> list[bytes]:
    return [payload_of(number) for number in range(count)]
