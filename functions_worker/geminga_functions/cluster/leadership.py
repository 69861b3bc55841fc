"""Leads while this worker's consumer is the active one: decides what runs where, and publishes it.

A leader first takes the topics of functions and of assignments for itself alone. From then on
nothing that an earlier leader still sends is stored, and what it had stored has been read. The
first publish that fails ends the lead: if the consumer is still active, it is taken again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass

from geminga import Client, ClientError, Consumer, ProducerFenced
from geminga_functions.cluster.assignment import SESSION_PROPERTY, Assigned
from geminga_functions.cluster.heartbeats import BEATS_A_LEASE, Heartbeat
from geminga_functions.cluster.keyed_log import KeyedLog, LogWriter
from geminga_functions.cluster.membership import WorkerInfo
from geminga_functions.cluster.orders import Facts, Orders, decide
from geminga_functions.cluster.sessions import Session, WorkerSessions
from geminga_functions.errors import NotLeader
from geminga_functions.names import FunctionName, InstanceName
from geminga_protocol.functions.functions_pb2 import FunctionMetaData
from geminga_runtime.clock import Clock
from geminga_runtime.service import Service
from geminga_server.rates.durations import Durations

log = logging.getLogger(__name__)

SUBSCRIPTION = "participants"
# Upstream's leader waited for its producers without end, and nothing was scheduled meanwhile.
TAKE_TIMEOUT_S = 10.0
RETAKE_S = 0.5
# How often workers are asked whether instances have ended that are to go elsewhere. All else wakes
# the leader: changes of the logs, workers that come, go and are drained, and its own heartbeats,
# without which no lease is known to have ended. It looks from time to time all the same.
ASK_S = 0.2
IDLE_S = 10.0
POLL_S = 0.1
HEARTBEATS_AT_ONCE = 100

Functions = KeyedLog[FunctionName, FunctionMetaData]
Assignments = KeyedLog[InstanceName, Assigned]


@dataclass(frozen=True, slots=True)
class WorkerInstances:
    """What a worker answered: how far it has read the assignments, and what may still run there."""

    position: tuple[int, int]
    present: frozenset[InstanceName]


# Raises ``GemingaError`` where the worker does not answer.
Ask = Callable[[str], Awaitable[WorkerInstances | None]]


class Leadership(Service):
    """This worker's part in the election, and its lead while it has it.

    ``ask`` asks a worker what runs there, and gives None where it does not answer. ``own_session``
    is the session of this worker's heartbeats.
    """

    def __init__(
        self,
        client: Client,
        coordination_topic: str,
        me: WorkerInfo,
        functions: Functions,
        assignments: Assignments,
        *,
        ask: Ask,
        own_session: Callable[[], str],
        lease_s: float,
        balances: bool,
        clock: Clock,
    ) -> None:
        super().__init__()
        # How long it took to publish what had been decided, and to decide.
        self.schedules, self.strategies = Durations(), Durations()
        self._client = client
        self._topic = coordination_topic
        self._me = me
        self._functions = functions
        self._assignments = assignments
        self._ask = ask
        self._own_session = own_session
        self._lease_s = lease_s
        self._balances = balances
        self._clock = clock
        self._sessions = WorkerSessions(lease_s)
        # Of functions, and of assignments.
        self._writers: tuple[LogWriter, LogWriter] | None = None
        self._lead: asyncio.Task[object] | None = None
        # The turn of its consumer in which this worker leads.
        self._turn = 0
        self._changed = asyncio.Event()
        functions.listen(self.wake)
        assignments.listen(self.wake)

    @property
    def is_leader(self) -> bool:
        """Whether this worker leads: its consumer is active, and it has the topics for itself."""
        return self._writers is not None

    @property
    def draining(self) -> frozenset[str]:
        """The workers that want no instances, as far as this one has heard while it leads."""
        return self._sessions.draining

    def wake(self) -> None:
        """Decide anew: something has changed."""
        self._changed.set()

    async def put(self, name: FunctionName, metadata: FunctionMetaData) -> None:
        """Store the metadata of a function; returns once this worker has them too. Raises
        ``NotLeader``, and ``ClientError`` where whether they are stored is not known."""
        writers = functions, _ = self._own_writers()
        with self._leading_by(writers):
            position = await functions.put(name, metadata.SerializeToString())
        await self._functions.reach(position)

    async def remove(self, name: FunctionName) -> None:
        """Remove a function. Raises as ``put``."""
        writers = functions, _ = self._own_writers()
        with self._leading_by(writers):
            position = await functions.remove(name)
        await self._functions.reach(position)

    async def drop_removed(self, before_ms: int) -> None:
        """Let nothing remain of what was removed before that time. Raises as ``put``."""
        writers = functions, assignments = self._own_writers()
        drops = [
            writer.drop(key)
            for log, writer in ((self._functions, functions), (self._assignments, assignments))
            for key, removed_ms in log.removed.items()
            if removed_ms < before_ms
        ]
        with self._leading_by(writers):
            await asyncio.gather(*drops)

    @contextmanager
    def _leading_by(self, writers: tuple[LogWriter, LogWriter]) -> Generator[None]:
        """One of the topics may have been taken by another leader while the other was not, also by
        an earlier attempt of this worker's to lead: then nothing can be changed any more until both
        are taken again."""
        try:
            yield
        except ProducerFenced:
            if self._writers is writers:
                self._stop_leading()
            raise

    def _own_writers(self) -> tuple[LogWriter, LogWriter]:
        if self._writers is None:
            raise NotLeader
        return self._writers

    async def _open_parts(self) -> None:
        await super()._open_parts()
        self.spawn_lasting(self._participate, name="participant")

    # --- election

    async def _participate(self) -> None:
        while True:
            try:
                await self._follow_elections()
            except ClientError as error:
                # No broker accepts the consumer: they are all away, or cut off from this worker.
                log.warning("worker is no candidate", extra={"reason": str(error)})
                await asyncio.sleep(RETAKE_S)

    async def _follow_elections(self) -> None:
        consumer = self._client.consumer(
            self._topic, SUBSCRIPTION, type="failover", name=str(self._me)
        )
        try:
            async with consumer as consumer_:
                while True:
                    await self._receive(consumer_)
                    self._follow_election(consumer_)
        finally:
            self._stop_leading()

    async def _receive(self, consumer: Consumer[bytes]) -> None:
        """Take the heartbeats; only the active consumer gets some."""
        messages = await consumer.receive_many(HEARTBEATS_AT_ONCE, POLL_S)
        now_s = self._clock.monotonic()
        for message in messages:
            heartbeat = Heartbeat.of(message)
            if heartbeat is None:
                continue
            if heartbeat.has_left:
                self._sessions.left(heartbeat.session)
                self.wake()
                continue
            if self._sessions.current(heartbeat.session.worker) != heartbeat.session:
                self.wake()
            self._sessions.heard(heartbeat.session, now_s)
            if heartbeat.is_draining and heartbeat.session.worker not in self.draining:
                self._sessions.drain(heartbeat.session)
                self.wake()
            # Of this life alone: another one's clock says nothing here.
            if heartbeat.sent_s is not None and heartbeat.session.session == self._own_session():
                self._sessions.caught_up(min(heartbeat.sent_s, now_s))
                if self._sessions.over():
                    self.wake()
        if messages:
            consumer.ack_cumulative(messages[-1])

    def _follow_election(self, consumer: Consumer[bytes]) -> None:
        is_active = consumer.is_active and consumer.is_connected
        if consumer.activations != self._turn:
            # Whoever was active between two turns has received and acknowledged heartbeats, of
            # which this worker will never hear: what it knows of sessions is worth nothing.
            self._turn = consumer.activations
            self._stop_leading()
        if is_active and (self._lead is None or self._lead.done()):
            self._lead = self.spawn(self._lead_on(), name="leader")
        elif not is_active:
            self._stop_leading()

    def _stop_leading(self) -> None:
        if self._lead is not None:
            self._lead.cancel()
            self._lead = None
            self._writers = None

    # --- leading

    async def _lead_on(self) -> None:
        writers: tuple[LogWriter, LogWriter] | None = None
        try:
            async with AsyncExitStack() as stack:
                writers = (
                    await self._functions.writer(stack, TAKE_TIMEOUT_S),
                    await self._assignments.writer(stack, TAKE_TIMEOUT_S),
                )
                self._sessions = WorkerSessions(self._lease_s)
                self._sessions.suppose(
                    {Session(each.worker, each.session) for each in self._assigned().values()},
                    self._clock.monotonic(),
                )
                self._writers = writers
                log.info("worker leads", extra={"worker": str(self._me)})
                # Each worker that is there is heard of once before anything is decided.
                await asyncio.sleep(self._lease_s / BEATS_A_LEASE)
                while True:
                    self._changed.clear()
                    await self._pause(await self._step(writers[1]))
        except (ClientError, TimeoutError) as error:
            log.warning("worker leads no more", extra={"reason": str(error) or "timeout"})
            await asyncio.sleep(RETAKE_S)
        finally:
            # One that was stopped may take its time to close its producers: the worker leads again
            # by then, with others.
            if self._writers is writers:
                self._writers = None

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _assigned(self) -> Mapping[InstanceName, Assigned]:
        return self._assignments.records

    async def _step(self, writer: LogWriter) -> float:
        """Decide and publish once; returns after how many seconds at the latest to do so again."""
        for session in self._sessions.forget():
            log.info("worker is gone", extra={"worker": session.worker})
        orders = self._decide({})
        is_asking = bool(orders.ask)
        if is_asking:
            found = await asyncio.gather(*[self._ask(worker) for worker in orders.ask])
            answers = dict(zip(orders.ask, found, strict=True))
            orders = self._decide(answers)
        sends = [
            writer.put(each.instance, each.encode(), {SESSION_PROPERTY: each.session})
            for each in orders.assign
        ]
        sends += [writer.remove(name) for name in orders.remove]
        if not sends:
            return ASK_S if is_asking else IDLE_S
        began_s = self._clock.monotonic()
        positions = await asyncio.gather(*sends)
        # The next decision knows what this one did.
        await self._assignments.reach(max(positions))
        self.schedules.add((self._clock.monotonic() - began_s) * 1000)
        return 0.0

    def _decide(self, answers: Mapping[str, WorkerInstances | None]) -> Orders:
        began_s = self._clock.monotonic()
        ended: set[InstanceName] = set()
        for name, each in self._assigned().items():
            answer = answers.get(each.worker)
            if answer is None or answer.position < each.position:
                continue
            if each.is_stopped and name not in answer.present:
                ended.add(name)
        orders = decide(
            Facts(
                self._functions.records,
                self._assigned(),
                self._sessions,
                ended,
                self.draining,
                self._balances,
            )
        )
        self.strategies.add((self._clock.monotonic() - began_s) * 1000)
        return orders
