"""The brokers that a proxy knows: those registered in ZooKeeper, or those given as URLs.

Everyone else takes the ``view`` as it is now and asks nobody. It outlives ZooKeeper: while that is
away, or restarts, the brokers go on serving, and the proxy goes on with the brokers it saw last.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Protocol

from geminga_cluster.brokers import LivingBrokers
from geminga_protocol.records.brokers import LocalBrokerData
from geminga_protocol.records.errors import MalformedRecord
from geminga_proxy.addresses.broker_view import BrokerView
from geminga_proxy.config import ProxyConfig
from geminga_runtime.coordination import Coordination, CoordinationError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# Brokers write their load every few seconds, and each write makes the view stale: so long it is
# gathered what changes. A broker that is just starting is found so much later.
GATHER_S = 0.1
# After ZooKeeper could not be asked.
RETRY_S = 1.0


class Brokers(Protocol):
    """Who knows the brokers."""

    @property
    def view(self) -> BrokerView:
        """The brokers there are, as far as is known now."""
        ...


class ListedBrokers:
    """Brokers, or a balancer before them, as the settings name them."""

    def __init__(self, config: ProxyConfig) -> None:
        self.view = BrokerView(config.service_urls, config.web_urls)


class RegisteredBrokers(Service):
    """The brokers in ZooKeeper, followed by watches. Open, it has looked once; where ZooKeeper
    could not be asked, it goes on trying, and the view is the last one (at first an empty one)."""

    def __init__(self, coordination: Coordination, *, is_tls: bool = False) -> None:
        """``is_tls``: take the brokers' addresses with TLS, and only brokers that have them."""
        super().__init__()
        self._is_tls = is_tls
        self.view = BrokerView(targets=frozenset())
        self._living = LivingBrokers(coordination)
        self._stale = asyncio.Event()
        self._living.follow(self._stale.set)

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack
        await self._look()
        self.spawn_lasting(self._follow, name="follow brokers")

    async def _follow(self) -> None:
        while True:
            await self._stale.wait()
            await asyncio.sleep(GATHER_S)
            if not await self._look():
                await asyncio.sleep(RETRY_S)

    async def _look(self) -> bool:
        """Read what is stale; whether ZooKeeper could be asked."""
        # Cleared before reading: what changes meanwhile is read again.
        self._stale.clear()
        try:
            records = await self._records()
        except CoordinationError as error:
            log.info("brokers not looked for: the last view holds", extra={"why": str(error)})
            self._stale.set()
            return False
        view = BrokerView.of_records(records, is_tls=self._is_tls)
        if view != self.view:
            self.view = view
            log.info("brokers found", extra={"brokers": list(view.service_urls)})
        return True

    async def _records(self) -> list[LocalBrokerData]:
        records: list[LocalBrokerData] = []
        for broker_id in await self._living.ids():
            try:
                record = await self._living.get(broker_id)
            except MalformedRecord as error:
                extra = {"broker": broker_id, "why": str(error)}
                log.warning("broker left out: its record cannot be read", extra=extra)
                continue
            if record is not None:
                records.append(record)
        return records
