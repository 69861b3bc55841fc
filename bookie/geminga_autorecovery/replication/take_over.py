"""Closes ledgers whose writers are gone, for auto-recovery: with each ledger's own password.

The recovery itself is ``geminga_ledger``'s. The ledgers of a cluster mostly have one password, that
of its brokers. It is in no bookie's config; each ledger's metadata has it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random

from geminga_ledger import LedgerConfig, Ledgers
from geminga_ledger.connections.dialer import MakeTls
from geminga_ledger.metadata.store import StoredMetadata
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination
from geminga_runtime.network import Network
from geminga_runtime.service import Service

# For so many passwords a ``Ledgers``, with its connections to bookies, stays open; for ledgers of
# any further password one is opened and closed each time.
PASSWORDS_MAX = 16


class TakeOvers(Service):
    """A ``Ledgers`` for each password, opened with the first ledger that has it."""

    def __init__(
        self,
        coordination: Coordination,
        network: Network,
        clock: Clock,
        random: Random,
        config: LedgerConfig,
        tls: MakeTls | None = None,
    ) -> None:
        super().__init__()
        self._tls = tls
        self._coordination = coordination
        self._network = network
        self._clock = clock
        self._random = random
        self._config = config
        # All that are in it are open, and none leaves it before the end.
        self._by_password: dict[bytes, Ledgers] = {}
        # What is opened later is closed with this service.
        self._stack: AsyncExitStack | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def close_ledger(self, stored: StoredMetadata) -> None:
        """Fence the ledger, recover its tail, close it; no error where it is closed already.

        Raises what ``Ledgers.open`` raises.
        """
        assert self._stack is not None, "used while it is open"
        # The metadata of old clients has no password: then the empty one is tried.
        password = stored.metadata.password or b""
        ledgers = self._by_password.get(password)
        if ledgers is not None:
            await ledgers.open(stored.ledger_id, recover=True)
        # A bound, because each client that creates ledgers chooses their password.
        elif len(self._by_password) < PASSWORDS_MAX:
            # Kept open with its connections: the next ledger of a cluster mostly has the same
            # password.
            made = await self._stack.enter_async_context(self._ledgers_with(password))
            # Two ledgers at once may open two: the later one is kept for others, both are closed at
            # the end.
            self._by_password[password] = made
            await made.open(stored.ledger_id, recover=True)
        else:
            async with self._ledgers_with(password) as once:
                await once.open(stored.ledger_id, recover=True)

    def _ledgers_with(self, password: bytes) -> Ledgers:
        return Ledgers(
            self._coordination,
            self._network,
            self._clock,
            self._random,
            replace(self._config, password=password),
            tls=self._tls,
        )
