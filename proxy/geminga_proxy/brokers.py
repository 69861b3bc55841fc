"""The brokers that a proxy knows: those registered in ZooKeeper, or those that the settings name.

The rest of the proxy reads ``view`` as it is at the moment, and never waits for ZooKeeper. While
ZooKeeper is away, or restarts, the brokers go on serving, and the proxy goes on with the brokers it
saw last.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Protocol

from geminga_cluster.brokers import LivingBrokers
from geminga_protocol.records.cluster.brokers import LocalBrokerData
from geminga_protocol.records.errors import MalformedRecord
from geminga_proxy.addresses.broker_view import BrokerView
from geminga_proxy.config import ProxyConfig
from geminga_runtime.coordination import Coordination, CoordinationError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# Brokers write their load every few seconds, and each write makes the view stale. Changes that come
# within this time are read together; a broker that is just starting is found so much later.
GATHER_S = 0.1
# After a failure of ZooKeeper's.
RETRY_S = 1.0


class Brokers(Protocol):
    """What knows the brokers: one of the two classes below."""

    # The brokers that are known now. It is replaced as a whole, never changed. Readers hold it
    # across awaits: they see one state of the brokers, if not the newest.
    view: BrokerView


class ListedBrokers:
    """Brokers, or a balancer in front of them, as the settings name them."""

    def __init__(self, config: ProxyConfig) -> None:
        self.view = BrokerView(config.service_urls, config.web_urls)


class RegisteredBrokers(Service):
    """The brokers in ZooKeeper, followed by watches.

    Entering reads them once. Where ZooKeeper cannot be reached, it is retried in the background,
    and the view is the last one, at first an empty one.
    """

    def __init__(self, coordination: Coordination, *, is_tls: bool = False) -> None:
        """``is_tls``: take the brokers' addresses with TLS, and only brokers that have them."""
        super().__init__()
        self._is_tls = is_tls
        # Not None: until brokers are found no address is allowed, rather than any.
        self.view = BrokerView(targets=frozenset())
        self._living = LivingBrokers(coordination)
        # Something in ZooKeeper has changed since the view was made.
        self._stale = asyncio.Event()
        # Watches only wake: what is there now is read anew, however many changes there were. Called
        # by watches, and when the session is back; the task below does the reading, one round at a
        # time.
        self._living.follow(self._stale.set)

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack
        # Once before clients come: with an empty view each of them would be refused.
        await self._look()
        self.spawn_lasting(self._follow, name="follow brokers")

    async def _follow(self) -> None:
        while True:
            await self._stale.wait()
            # What changes during this pause is read together. The flag stays set during the pause,
            # so changes in it cost no further round.
            await asyncio.sleep(GATHER_S)
            # The flag is still set then: the next round begins at once after this pause.
            if not await self._look():
                await asyncio.sleep(RETRY_S)

    async def _look(self) -> bool:
        """Read what is stale; False where ZooKeeper could not be reached."""
        # Cleared before reading: what changes meanwhile is read again.
        self._stale.clear()
        records: list[LocalBrokerData] = []
        try:
            # One after the other; nearly all of them are in memory, under watches.
            for broker_id in await self._living.ids():
                try:
                    record = await self._living.get(broker_id)
                except MalformedRecord as error:
                    extra = {"broker": broker_id, "why": str(error)}
                    log.warning("broker left out: its record cannot be read", extra=extra)
                    continue
                if record is not None:  # else the broker has gone meanwhile
                    records.append(record)
        except CoordinationError as error:
            log.info("brokers not looked for: the last view holds", extra={"why": str(error)})
            # The next round reads again, although no watch fires for what failed.
            self._stale.set()
            return False
        # As a whole: a view with half of the new brokers never shows.
        view = BrokerView.of_records(records, is_tls=self._is_tls)
        # Each load report makes the view stale, and few of them change an address. Equal views are
        # equal in their order, too, as ``ids`` is sorted.
        if view != self.view:
            self.view = view
            log.info("brokers found", extra={"brokers": list(view.service_urls)})
        return True
