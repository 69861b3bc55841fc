"""Steps that go wrong between ZooKeeper and ledgers: a request that fails, done or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    MemoryLedgers,
    MemoryReader,
    MemoryWriter,
)

from geminga_ledger import AppendTimedOut, LedgerListener, NotEnoughBookies
from geminga_runtime.coordination import ConnectionLost

ResultT = TypeVar("ResultT")


class DeathError(Exception):
    """The process ended here."""


@dataclass(frozen=True)
class Fault:
    """How a step goes wrong: whether it has its effect all the same, and whether the process ends
    there, so that the broker does not hear of it."""

    is_done: bool = False
    is_death: bool = False


@dataclass
class Steps:
    """Counts what is asked of the outside. ``faults`` says which steps go wrong, ``meanwhile``
    what another broker does right before a step."""

    faults: dict[int, Fault] = field(default_factory=dict[int, Fault])
    meanwhile: dict[int, Callable[[], Awaitable[object]]] = field(
        default_factory=dict[int, Callable[[], Awaitable[object]]]
    )
    count: int = 0

    def begin(self) -> Fault | None:
        """The next step; how it goes wrong."""
        self.count += 1
        return self.faults.get(self.count - 1)

    async def take(
        self,
        act: Callable[[], Awaitable[ResultT]],
        error: Exception,
        *,
        is_atomic: bool = False,
    ) -> ResultT:
        """Do a step; an atomic one that fails has no effect."""
        if (others := self.meanwhile.get(self.count)) is not None:
            await others()
        fault = self.begin()
        if fault is None:
            return await act()
        if fault.is_done and (fault.is_death or not is_atomic):
            await act()
        raise DeathError if fault.is_death else error

    async def intercept(self, request: str, act: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """For ``InterceptedSession``: each request to ZooKeeper is a step."""
        return await self.take(act, ConnectionLost(request))


class SteppedLedgers(MemoryLedgers):
    """What a cursor's store asks of ``Ledgers``; they are those of ``ledgers``."""

    def __init__(self, ledgers: MemoryLedgers, steps: Steps) -> None:
        super().__init__()
        self.entries, self.writers, self.opened = ledgers.entries, ledgers.writers, ledgers.opened
        self._steps = steps

    def new_writer(self, ledger_id: int, listener: LedgerListener) -> MemoryWriter:
        writer = SteppedWriter(self, ledger_id, listener)
        writer.steps = self._steps
        return writer

    async def create(
        self,
        *,
        listener: LedgerListener,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        custom: Mapping[str, bytes],
    ) -> MemoryWriter:
        create = partial(
            super().create,
            listener=listener,
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            custom=custom,
        )
        # ``Ledgers`` itself finds out what became of a creation whose answer was lost.
        return await self._steps.take(create, NotEnoughBookies(1, 0), is_atomic=True)

    async def open(self, ledger_id: int, *, recover: bool) -> MemoryReader:
        opened = partial(super().open, ledger_id, recover=recover)
        reader = await self._steps.take(opened, NotEnoughBookies(1, 0))
        return SteppedReader(self.entries[ledger_id], reader, self._steps)

    async def delete(self, ledger_id: int) -> None:
        await self._steps.take(partial(super().delete, ledger_id), ConnectionLost("delete"))


class SteppedReader(MemoryReader):
    """A reader whose reads are steps."""

    def __init__(self, entries: list[bytes], reader: MemoryReader, steps: Steps) -> None:
        super().__init__(reader.ledger_id, entries)
        self._steps = steps

    async def read(self, first: int, last: int, *, bytes_max: int) -> list[bytes]:
        read = partial(super().read, first, last, bytes_max=bytes_max)
        return await self._steps.take(read, NotEnoughBookies(1, 0))


class SteppedWriter(MemoryWriter):
    """A writer whose appends are steps."""

    steps: Steps

    def append(self, payload: bytes) -> int:
        fault = self.steps.begin()
        entry_id = super().append(payload)
        if fault is None:
            return entry_id
        if fault.is_done:
            self.last_confirmed = self.last_pushed  # the broker does not hear of it
        self.fail(AppendTimedOut(self.ledger_id, entry_id, 60.0))
        if fault.is_death:
            raise DeathError
        return entry_id
