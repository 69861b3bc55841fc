"""Termination: the record says where the log ends, and no broker ever writes to it again.

The last entry must be known before it is recorded: so what was taken is confirmed first, the open
ledger is closed, and no other one is opened unless entries wait that were taken before. While that
is under way new entries are refused, as after it.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from weakref import proxy

from geminga_broker.errors import StorageUnavailable, TopicFenced
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.records.own_record import OWNERSHIP_LOST
from geminga_broker.managed_ledger.records.properties import OwnedLog
from geminga_broker.managed_ledger.records.recorded_chain import RecordedChain
from geminga_ledger import LedgerError, LedgerFenced
from geminga_runtime.coordination import CoordinationError

# How long the end waits for bookies and ZooKeeper.
DEADLINE_S = 60.0


class TerminableLog(OwnedLog, Protocol):
    """What a termination needs of its managed ledger."""

    async def drain(self) -> bool:
        """Close the ledgers that are open; whether no entry waits for another one."""
        ...

    def go_on(self) -> None:
        """Open a ledger for the entries that wait: the log was not terminated."""
        ...


class Termination:
    """Whether ``owner``, whose record is ``recorded``, is terminated, and terminating it."""

    __slots__ = ("_owner", "_recorded", "_under_way", "at")

    def __init__(self, owner: TerminableLog, recorded: RecordedChain) -> None:
        # The last entry of a log that is terminated. Set from the record when the log is opened.
        self.at: Position | None = None
        # How many calls of ``terminate`` wait: where one fails, the others may still succeed.
        self._under_way = 0
        # A proxy: the log has its termination, and is freed without the garbage collector.
        self._owner: TerminableLog = proxy(owner)
        self._recorded = recorded

    @property
    def is_under_way(self) -> bool:
        """Whether the log is being terminated: no ledger may be opened for entries to come."""
        return self._under_way > 0 and self.at is None

    async def terminate(self) -> Position:
        """Terminate the log; returns the position of its last entry.

        What was taken is confirmed first. Raises ``TopicFenced``, ``StorageUnavailable``, and then
        the log takes entries again.
        """
        self._under_way += 1
        try:
            async with asyncio.timeout(DEADLINE_S):
                # Again where a ledger failed while it was drained and gave entries back, until
                # nothing waits, or another call has terminated the log.
                while self.at is None:
                    # Drained: every entry that was taken is durable, so the last one is known.
                    # Nothing comes in behind it: while this is under way the log refuses entries,
                    # and opens no ledger but for entries that wait.
                    if await self._owner.drain():
                        await self._recorded.save(ends=True)
                        self.at = self._recorded.store.terminated_at
                return self.at
        except (LedgerFenced, *OWNERSHIP_LOST) as error:
            # ``LedgerFenced`` came from closing the last ledger: the next owner recovers it.
            self._owner.fence()
            raise TopicFenced(self._owner.name) from error
        except (LedgerError, CoordinationError, TimeoutError) as error:
            raise StorageUnavailable(f"{self._owner.name} was not terminated: {error}") from error
        finally:
            # From here on the log takes entries again, unless another call still waits.
            self._under_way -= 1
            if self.at is None and not self._under_way:
                self._owner.go_on()
