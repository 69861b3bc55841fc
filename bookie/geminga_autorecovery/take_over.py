"""Closes ledgers whose writers are gone, for auto-recovery: with each ledger's own password.

The recovery is ``geminga_ledger``'s. A cluster's ledgers have one password mostly, that of its
brokers, which nobody tells a bookie; it stands in the metadata.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random

from geminga_ledger import LedgerConfig, Ledgers, UnsupportedLedger
from geminga_ledger.dialer import MakeTls
from geminga_ledger.store import StoredMetadata
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination
from geminga_runtime.network import Network
from geminga_runtime.service import Service

# Each has its own connections to the bookies it met.
PASSWORDS_MAX = 16


class TakeOvers(Service):
    """Opens what it needs with the first ledger of each password."""

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
        self._by_password: dict[bytes, Ledgers] = {}
        self._stack: AsyncExitStack | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def close_ledger(self, stored: StoredMetadata) -> None:
        """Fence the ledger, recover its tail, close it; no error where it is closed already.

        Raises what ``Ledgers.open`` raises; ``UnsupportedLedger`` for one password too many.
        """
        password = stored.metadata.password or b""
        ledgers = self._by_password.get(password)
        if ledgers is None:
            ledgers = await self._open_with(password, stored.ledger_id)
        await ledgers.open(stored.ledger_id, recover=True)

    async def _open_with(self, password: bytes, ledger_id: int) -> Ledgers:
        assert self._stack is not None, "used while it is open"
        if len(self._by_password) >= PASSWORDS_MAX:
            raise UnsupportedLedger(
                ledger_id, f"has another password than {PASSWORDS_MAX} ledgers taken over before"
            )
        ledgers = Ledgers(
            self._coordination,
            self._network,
            self._clock,
            self._random,
            replace(self._config, password=password),
            tls=self._tls,
        )
        # Known before it is open: a second one would be as good, and nobody waits for the first.
        self._by_password[password] = await self._stack.enter_async_context(ledgers)
        return ledgers
