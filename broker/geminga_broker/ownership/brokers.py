"""The brokers of a cluster: this one's registration with its load, the others, and the leader.

A living broker has an ephemeral node ``/loadbalance/brokers/<host:web port>`` with its addresses
and its load; proxies, other brokers and admin tools find it there. One of them holds the ephemeral
node ``/loadbalance/leader``: that is the leader, whose load manager assigns bundles. Every broker
watches that node and claims it when it is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace

from geminga_broker.metadata.watched import watched_children, watched_values
from geminga_broker.ownership.address import BrokerAddress
from geminga_broker.ownership.claims import claim
from geminga_broker.ownership.load import has_changed
from geminga_protocol.records.brokers import (
    BROKERS_PATH,
    LEADER_PATH,
    LeaderBroker,
    LocalBrokerData,
    broker_path,
)
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeMissing,
    SessionState,
    take_over_ephemeral,
)
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# As upstream: look every 5 s whether the load changed by a tenth, write at least every 15 minutes.
LOOK_INTERVAL_S = 5.0
WRITE_INTERVAL_S = 15 * 60.0

ReportLoad = Callable[[], LocalBrokerData]


class Brokers(Service):
    """This broker among the others. Opening registers it and takes part in the election."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        address: BrokerAddress,
        report_load: ReportLoad,
        *,
        version: str,
        former_broker_ids: Iterable[str] = (),
    ) -> None:
        """``report_load`` says what this broker carries; addresses and times are filled in here.

        ``former_broker_ids`` are ids this broker had before: their nodes are its own past.
        """
        super().__init__()
        self.address = address
        self._coordination = coordination
        self._clock = clock
        self._report_load = report_load
        self._version = version
        self._former_ids = frozenset(former_broker_ids) - {address.broker_id}
        self._started_ms = clock.wall_ms()
        self._names = watched_children(coordination)
        self._leader = watched_values(coordination, LeaderBroker.decode)
        self._is_leader = False
        self._written = LocalBrokerData()
        self._written_s = 0.0
        self._election = asyncio.Lock()

    async def _open(self, stack: AsyncExitStack) -> None:
        self._coordination.on_session(self._session_changed)
        stack.push_async_callback(self._withdraw)
        await asyncio.gather(self._register(), self._elect(), self._delete_former())
        self.spawn_lasting(self._keep_load_current, name="report load")

    # The others

    async def active(self) -> list[str]:
        """The ids of the living brokers, sorted."""
        return sorted(await self._names.get(BROKERS_PATH) or ())

    async def leader(self) -> LeaderBroker | None:
        """Who leads; None in the moment between two leaders."""
        return await self._leader.get(LEADER_PATH)

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads."""
        return self._is_leader

    # Registration

    def _record(self) -> LocalBrokerData:
        """This broker as the others see it now."""
        address = self.address
        return replace(
            self._report_load(),
            web_service_url=address.http_url or None,
            web_service_url_tls=address.http_url_tls or None,
            pulsar_service_url=address.broker_url or None,
            pulsar_service_url_tls=address.broker_url_tls or None,
            last_update=self._clock.wall_ms(),
            broker_version_string=self._version,
            start_timestamp=self._started_ms,
            advertised_listeners=address.listeners,
        )

    async def _register(self) -> None:
        record = self._record()
        path = broker_path(self.address.broker_id)
        await take_over_ephemeral(self._coordination, path, record.encode())
        self._written, self._written_s = record, self._clock.monotonic()

    async def _keep_load_current(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            record = self._record()
            is_old = self._clock.monotonic() - self._written_s >= WRITE_INTERVAL_S
            if not is_old and not has_changed(self._written, record):
                continue
            try:
                await self._coordination.set(broker_path(self.address.broker_id), record.encode())
            except NodeMissing:
                await self._try(self._register)  # somebody deleted it by hand
            except CoordinationError:
                continue  # no connection: registered again when it is back
            self._written, self._written_s = record, self._clock.monotonic()

    async def _delete_former(self) -> None:
        """Take away what an earlier life with other ports left behind."""
        for broker_id in sorted(self._former_ids):
            await self._delete(broker_path(broker_id))

    async def _withdraw(self) -> None:
        """On closing: nobody need wait for the session's end to see us gone."""
        paths = [broker_path(self.address.broker_id)]
        if self._is_leader:
            paths.append(LEADER_PATH)
        self._is_leader = False
        await asyncio.gather(*map(self._delete, paths), return_exceptions=True)

    async def _delete(self, path: str) -> None:
        try:
            await self._coordination.delete(path)
        except NodeMissing:
            return

    # Election

    async def _elect(self) -> None:
        """Become the leader if there is none; in any case learn when there is none again."""
        record = LeaderBroker(broker_id=self.address.broker_id, service_url=self.address.http_url)
        async with self._election:
            node = await claim(
                self._coordination,
                LEADER_PATH,
                record.encode(),
                is_stale=self._is_past_leader,
                on_change=self._leader_changed,
            )
            if node.is_ours and not self._is_leader:
                log.info("became the leader broker", extra={"broker": self.address.broker_id})
            self._is_leader = node.is_ours

    def _is_past_leader(self, value: bytes) -> bool:
        broker_id = LeaderBroker.decode(value).broker_id
        return broker_id == self.address.broker_id or broker_id in self._former_ids

    def _leader_changed(self) -> None:
        if not self._is_closing:
            self.spawn(self._try(self._elect), name="elect the leader broker")

    # The session

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._is_leader = False
        elif state is SessionState.CONNECTED and not self._is_closing:
            self.spawn(self._try(self._register), name="register again")
            self.spawn(self._try(self._elect), name="elect again")

    async def _try(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do work that a lost connection may break: it is done again when that is back."""
        try:
            await work()
        except GemingaError as error:
            log.info("not done while reconnecting", extra={"why": str(error)})
