"""The end of a log for good: its record says so, and no broker ever writes to it again."""

from __future__ import annotations

import asyncio
from typing import Protocol
from weakref import proxy

from geminga_broker.errors import StorageUnavailable, TopicFenced, TopicTerminated
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.records.own_record import OWNERSHIP_LOST
from geminga_broker.managed_ledger.records.recorded_chain import RecordedChain
from geminga_ledger import LedgerError, LedgerFenced
from geminga_runtime.coordination import CoordinationError

# How long the end waits for bookies and ZooKeeper.
DEADLINE_S = 60.0


class EndingLog(Protocol):
    """What a termination asks of its managed ledger."""

    name: str

    async def drain(self) -> bool:
        """Close the ledgers that are open; whether nothing waits for another one."""
        ...

    def go_on(self) -> None:
        """It was not terminated: what waits for a ledger gets one."""
        ...

    def fence(self) -> None:
        """Another broker has the log."""
        ...


class Termination:
    """Ends ``owner``, whose record is ``recorded``; ``at`` is its last entry once it has ended."""

    __slots__ = ("_owner", "_recorded", "_under_way", "at")

    def __init__(self, owner: EndingLog, recorded: RecordedChain) -> None:
        self.at: Position | None = None
        # How many ask for it now: where one fails, the others may still succeed.
        self._under_way = 0
        self._owner: EndingLog = proxy(owner)
        self._recorded = recorded

    def loaded(self) -> None:
        """The record was read."""
        self.at = self._recorded.terminated_at

    @property
    def is_under_way(self) -> bool:
        """Whether the log is about to end: nobody may begin a ledger for entries to come."""
        return self._under_way > 0 and self.at is None

    def check_entries(self) -> None:
        """Raise ``TopicTerminated`` where the log has ended, or is about to."""
        if self.is_under_way or self.at is not None:
            raise TopicTerminated

    async def terminate(self) -> Position:
        """Take nothing more, now and for ever; the position of the last entry.

        What was taken is confirmed first. Raises ``TopicFenced``, ``StorageUnavailable``, and then
        more may be taken again.
        """
        self._under_way += 1
        try:
            async with asyncio.timeout(DEADLINE_S):
                while self.at is None:
                    if await self._owner.drain():
                        await self._recorded.terminate()
                        self.at = self._recorded.terminated_at
                return self.at
        except (LedgerFenced, *OWNERSHIP_LOST) as error:
            self._owner.fence()
            raise TopicFenced(self._owner.name) from error
        except (LedgerError, CoordinationError, TimeoutError) as error:
            raise StorageUnavailable(f"{self._owner.name} was not terminated: {error}") from error
        finally:
            self._under_way -= 1
            if self.at is None and not self._under_way:
                self._owner.go_on()
