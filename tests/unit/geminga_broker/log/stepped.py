"""ZooKeeper and ledgers between whose steps things go wrong: a request that fails, done or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tests.unit.geminga_broker.log.stand_ins import MemoryLedgers, MemoryReader, MemoryWriter

from geminga_ledger import AppendTimedOut, LedgerListener, NotEnoughBookies
from geminga_runtime.coordination import ConnectionLost, Coordination, NodeStat

ResultT = TypeVar("ResultT")


class DeathError(Exception):
    """The process ended here."""


@dataclass
class Steps:
    """Counts what is asked of the outside; step ``at`` goes wrong, once.

    ``is_done`` says whether it has its effect all the same; ``is_death`` that nobody hears of it.
    """

    at: int = -1
    is_done: bool = False
    is_death: bool = False
    count: int = 0

    def goes_wrong(self) -> bool:
        self.count += 1
        return self.count - 1 == self.at

    async def take(
        self,
        act: Callable[[], Awaitable[ResultT]],
        error: Exception,
        *,
        is_atomic: bool = False,
    ) -> ResultT:
        """Do a step; an atomic one that fails has no effect."""
        if not self.goes_wrong():
            return await act()
        if self.is_done and (self.is_death or not is_atomic):
            await act()
        raise DeathError if self.is_death else error


class SteppedCoordination:
    """What a cursor's store asks of ``Coordination``."""

    def __init__(self, coordination: Coordination, steps: Steps) -> None:
        self._coordination = coordination
        self._steps = steps

    async def get(self, path: str) -> tuple[bytes, NodeStat]:
        return await self._steps.take(
            lambda: self._coordination.get(path), ConnectionLost(f"get {path}")
        )

    async def create(self, path: str, value: bytes, *, make_parents: bool) -> str:
        return await self._steps.take(
            lambda: self._coordination.create(path, value, make_parents=make_parents),
            ConnectionLost(f"create {path}"),
        )

    async def set(self, path: str, value: bytes, *, version: int) -> NodeStat:
        return await self._steps.take(
            lambda: self._coordination.set(path, value, version=version),
            ConnectionLost(f"set {path}"),
        )

    async def delete(self, path: str) -> None:
        await self._steps.take(
            lambda: self._coordination.delete(path), ConnectionLost(f"delete {path}")
        )


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
        return await self._steps.take(opened, NotEnoughBookies(1, 0))

    async def delete(self, ledger_id: int) -> None:
        await self._steps.take(partial(super().delete, ledger_id), ConnectionLost("delete"))


class SteppedWriter(MemoryWriter):
    """A writer whose appends are steps."""

    steps: Steps

    def append(self, payload: bytes) -> int:
        if not self.steps.goes_wrong():
            return super().append(payload)
        if self.steps.is_done:
            super().append(payload)
            self.last_confirmed = self.last_pushed  # the bookies have it, nobody hears of it
        if self.steps.is_death:
            raise DeathError
        self.fail(AppendTimedOut(self.ledger_id, self.last_pushed, 60.0))
        return self.last_pushed
