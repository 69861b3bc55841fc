"""This broker among the others: its registration with its load, and whether it leads them.

A living broker has an ephemeral node ``/loadbalance/brokers/<host:web port>`` with its addresses
and its load; proxies, other brokers and admin tools find it there. One of them holds the ephemeral
node ``/loadbalance/leader``: that is the leader, whose load manager assigns bundles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

from geminga_broker.ownership.addresses.address import BrokerAddress
from geminga_broker.ownership.assignment.load_report import LoadReportConfig, has_changed
from geminga_broker.ownership.assignment.placement import BrokersView
from geminga_cluster.brokers import LivingBrokers
from geminga_cluster.election import LeaderElection
from geminga_protocol.records.cluster.brokers import (
    LEADER_PATH,
    LeaderBroker,
    LocalBrokerData,
    broker_path,
)
from geminga_protocol.records.encodings.json_records import JsonRecord
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

# The figures of a load report alone; ``Brokers.record`` adds addresses and times.
ReportLoad = Callable[[], LocalBrokerData]


class Brokers(Service):
    """This broker among the others. Opening registers it and takes part in the election.

    ZooKeeper deletes the registration with the session: a new session registers again.
    """

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        address: BrokerAddress,
        report_load: ReportLoad,
        *,
        version: str,
        former_broker_ids: Iterable[str] = (),
        reports: LoadReportConfig | None = None,
    ) -> None:
        """``report_load`` returns the load of this broker; addresses and times are filled in here.

        ``former_broker_ids`` are ids that this broker had in earlier runs, with other ports: nodes
        of these are its own.
        """
        super().__init__()
        self.address = address
        self._coordination = coordination
        self._clock = clock
        self._report_load = report_load
        self._reports = reports or LoadReportConfig()
        self._version = version
        self._former_ids = frozenset(former_broker_ids) - {address.broker_id}
        # One time for the whole life of this object: a registration that is written again after a
        # session was lost does not make the broker look younger.
        self._started_ms = clock.wall_ms()
        # The registrations of all brokers, this one's among them.
        self.living = LivingBrokers(coordination)
        # Which broker leads.
        self.election = LeaderElection(
            coordination,
            LEADER_PATH,
            LeaderBroker(broker_id=address.broker_id, service_url=address.rest_url),
            # A leader's node of an earlier run of this broker is taken over, not waited for.
            is_past=lambda leader: leader.broker_id in {address.broker_id, *self._former_ids},
            on_leading=self._leading_changed,
        )
        # The report that was written last, and when (monotonic). The two change together, after a
        # write that ZooKeeper confirmed: ``_keep_load_current`` compares with what other brokers
        # can read. Two writes may overlap (the periodic one, and one after a reconnection); each
        # writes a whole record, so the later one simply holds.
        self._written = LocalBrokerData()
        self._written_s = 0.0

    async def _open(self, stack: AsyncExitStack) -> None:
        # Before the first request: a session that is lost during the registration must lead to
        # another.
        self._coordination.on_session(self._session_changed)
        # Before it registers: a registration that is cancelled may have made the node all the same.
        stack.push_async_callback(self._withdraw)
        # Side by side, as neither depends on the other: the former ids are other nodes. Only a
        # registered broker takes part in the election: the leader's placement looks for itself
        # among the living.
        await asyncio.gather(self._register(), self._delete_former())
        await stack.enter_async_context(self.election)
        # Last: the load is written to the node that was registered above.
        self.spawn_lasting(self._keep_load_current, name="report load")

    # The others

    async def view(self) -> BrokersView:
        """What is known of all brokers: those that live, and which leads. Raises
        ``CoordinationError``."""
        loads: dict[str, LocalBrokerData] = {}
        for broker_id in await self.living.ids():
            # None for a broker that ended since the list was read. Both caches are under watches,
            # so this sends requests only for what has changed.
            if (record := await self.living.get(broker_id)) is not None:
                loads[broker_id] = record
        # After the registrations: the leader named here may be one that is not in ``loads`` any
        # more, and ``place`` checks that.
        leader = await self.election.leader()
        return BrokersView(loads, None if leader is None else leader.broker_id)

    # Registration

    def record(self) -> LocalBrokerData:
        """The registration of this broker with its present load."""
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
        record = self.record()
        path = broker_path(self.address.broker_id)
        # Called again for each session. An earlier one may have left the node, which is replaced in
        # one transaction: other brokers never see this broker missing.
        await take_over_ephemeral(self._coordination, path, await _encoded(record))
        # After the write: if it failed, the next report is compared with the older one, and is
        # written.
        self._written, self._written_s = record, self._clock.monotonic()

    async def _keep_load_current(self) -> None:
        config = self._reports
        change_percent = config.load_balancer_report_change_percent
        while True:
            await asyncio.sleep(config.load_balancer_report_interval_min_s)
            # Compared with what was written, not with the last measurement: slow changes add up.
            record = self.record()
            unwritten_s = self._clock.monotonic() - self._written_s
            is_old = unwritten_s >= config.load_balancer_report_interval_max_s
            if not is_old and not has_changed(self._written, record, change_percent):
                continue
            # ``set``, not a take-over: a new session has replaced the node already, or is about to.
            try:
                path = broker_path(self.address.broker_id)
                await self._coordination.set(path, await _encoded(record))
            except NodeMissing:
                # Without the node no client is redirected here, and no bundle is assigned here.
                await self._register_again()  # it was deleted by hand
            except CoordinationError:
                # No connection: registered again when it is back. What was written stays noted, so
                # that the comparison above is with what the others know.
                continue
            self._written, self._written_s = record, self._clock.monotonic()

    async def _delete_former(self) -> None:
        """Delete the registrations that earlier runs with other ports left behind."""
        # Sorted: the requests of a simulation must come in the same order in each run. Ephemeral
        # nodes, so ZooKeeper would delete them in time. Until then the leader would assign bundles
        # to a broker that does not listen there any more.
        for broker_id in sorted(self._former_ids):
            with suppress(NodeMissing):
                await self._coordination.delete(broker_path(broker_id))

    async def _withdraw(self) -> None:
        """Delete the registration on closing, so that the others need not wait until ZooKeeper ends
        the session."""
        # The node may be missing where the registration failed, and ZooKeeper may be away:
        # ``NodeMissing`` is a ``CoordinationError``, too, and either way nothing is left to do.
        with suppress(CoordinationError):
            await self._coordination.delete(broker_path(self.address.broker_id))

    def _leading_changed(self, is_leader: bool) -> None:  # noqa: FBT001 - a callback's value
        if is_leader:
            log.info("became the leader broker", extra={"broker": self.address.broker_id})

    # The session

    def _session_changed(self, state: SessionState) -> None:
        # Also without a new session: registering sets the node's value then, which does no harm,
        # and covers a session that ended while this broker had no connection.
        if state is SessionState.CONNECTED and not self._is_closing:
            self.spawn(self._register_again(), name="register again")

    async def _register_again(self) -> None:
        """Register. Where the connection is lost meanwhile, the next session event does it."""
        try:
            await self._register()
        except GemingaError as error:
            log.info("broker not registered", extra={"why": str(error)})


async def _encoded(record: JsonRecord) -> bytes:
    """The record's bytes, encoded in turns with other tasks: 1,000 bundles take 6 ms."""
    parts: list[bytes] = []
    for part in record.encode_in_parts():
        parts.append(part)
        await asyncio.sleep(0)
    return b"".join(parts)
