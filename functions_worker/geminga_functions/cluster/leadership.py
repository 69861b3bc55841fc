"""Takes part in the election of a leader, who decides which worker runs what and publishes it.

All workers consume one topic with a Failover subscription, and the worker with the active consumer
leads. A new leader first opens exclusive producers on the topics of functions and of assignments.
From then on the broker refuses what an earlier leader still sends, and this leader has read
everything that the earlier one stored. The first publish that fails ends the lead. If the consumer
is still active, the worker starts to lead again from the beginning.
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
# Bounds how long a new leader waits for its producers: upstream's leader waited without end, and
# nothing was scheduled meanwhile.
TAKE_TIMEOUT_S = 10.0
RETAKE_S = 0.5
# How often the leader asks workers whether the instances that it stopped there have ended.
ASK_S = 0.2
# Every other event wakes the leader: changes of the logs; workers that join, leave or drain; and
# its own heartbeats, without which it cannot know that a lease has ended. It decides again after
# this time even so, in case an event was missed.
IDLE_S = 10.0
POLL_S = 0.1
# So many are acknowledged with one command, and taken in before the loop turns.
HEARTBEATS_AT_ONCE = 100

Functions = KeyedLog[FunctionName, FunctionMetaData]
Assignments = KeyedLog[InstanceName, Assigned]


@dataclass(frozen=True, slots=True)
class WorkerInstances:
    """A worker's answer: how far it has read the assignments, and which instances may still run."""

    # (ledger id, entry id) of the last assignment that it has read.
    position: tuple[int, int]
    present: frozenset[InstanceName]


# Takes the id of a worker; None if the worker does not answer.
Ask = Callable[[str], Awaitable[WorkerInstances | None]]


# How a worker comes to lead:
#
#   consumer active -> exclusive writers of both topics -> both read to their ends -> is_leader
#      ^                                                     -> one period of heartbeats -> decides
#      |                                                                                     |
#      +--- refused as fenced, a time-out, or a consumer that is active no more -------------+
class Leadership(Service):
    """This worker's part in the election, and its work as the leader while it leads.

    ``ask`` asks a worker which instances run there. ``own_session`` returns the session of this
    worker's heartbeats. ``lease_s`` is the duration of a lease; with ``balances`` instances move so
    that all workers run equally many.
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
        # Milliseconds that the leader took to publish its decisions, and to decide.
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
        # What this worker has heard of leases while it led. Each lead begins with a new one.
        self.sessions = WorkerSessions(lease_s)
        # The exclusive writers of functions and of assignments; None while this worker does not
        # lead. Only the task in ``_lead`` sets it; ``_stop_leading`` takes it back, before the task
        # has ended.
        self._writers: tuple[LogWriter, LogWriter] | None = None
        self._lead: asyncio.Task[object] | None = None
        # How many times the consumer had become active when this worker began to lead.
        self._turn = 0
        # Set to have the leader decide again, because a fact has changed.
        self.changed = asyncio.Event()
        functions.listeners.append(self.changed.set)
        assignments.listeners.append(self.changed.set)

    @property
    def is_leader(self) -> bool:
        """Whether this worker leads: its consumer is active, and it has the topics for itself."""
        return self._writers is not None

    async def put(self, name: FunctionName, metadata: FunctionMetaData) -> None:
        """Store the metadata of a function; returns once this worker has read them back.

        Raises ``NotLeader``, or ``ClientError`` if it is unknown whether they are stored.
        """
        with self._leading() as (functions, _):
            position = await functions.put(name, metadata.SerializeToString())
        # So a request that follows this one at the same worker finds what this one stored.
        await self._functions.reach(position)

    async def remove(self, name: FunctionName) -> None:
        """Remove a function. Raises as ``put``."""
        with self._leading() as (functions, _):
            position = await functions.remove(name)
        await self._functions.reach(position)

    async def drop_removed(self, before_ms: int) -> None:
        """Erase the marks of functions and assignments that were removed before ``before_ms``, in
        milliseconds of the wall clock. Raises as ``put``."""
        with self._leading() as (functions, assignments):
            # Of the marks that this worker has read: it leads, so it has read both topics to their
            # ends.
            drops = [
                writer.drop(key)
                for log, writer in ((self._functions, functions), (self._assignments, assignments))
                for key, removed_ms in log.removed.items()
                if removed_ms < before_ms
            ]
            await asyncio.gather(*drops)

    @contextmanager
    def _leading(self) -> Generator[tuple[LogWriter, LogWriter]]:
        """The writers of functions and of assignments. Raises ``NotLeader`` without them.

        A publish of the block that is refused because of a newer producer ends the lead. Another
        leader, or an earlier attempt of this worker to lead, may have taken one of the two topics
        and not the other. Then no change succeeds until one worker has taken both again.
        """
        writers = self._writers
        if writers is None:
            raise NotLeader
        try:
            yield writers
        except ProducerFenced:
            # Meanwhile this worker may lead anew, with other writers, which nothing has refused.
            if self._writers is writers:
                self._stop_leading()
            raise

    async def _open(self, stack: AsyncExitStack) -> None:  # noqa: ARG002 - nothing stays open
        self.spawn_lasting(self._participate, name="participant")

    # --- election

    async def _participate(self) -> None:
        while True:
            candidate = self._client.consumer(
                self._topic, SUBSCRIPTION, type="failover", name=str(self._me)
            )
            try:
                async with candidate as consumer:
                    while True:
                        await self._receive_heartbeats(consumer)
                        self._follow_election(consumer)
            except ClientError as error:
                # No broker accepts the consumer: all are down, or cut off from this worker.
                log.warning("worker is no candidate", extra={"reason": str(error)})
                await asyncio.sleep(RETAKE_S)
            finally:
                self._stop_leading()

    async def _receive_heartbeats(self, consumer: Consumer[bytes]) -> None:
        """Receive heartbeats for at most ``POLL_S``; only the active consumer gets any."""
        messages = await consumer.receive_many(HEARTBEATS_AT_ONCE, POLL_S)
        # One time for all of them, taken after they were received: never before a heartbeat was
        # sent, so that a lease counted from it ends no earlier than the real one.
        now_s = self._clock.monotonic()
        for message in messages:
            heartbeat = Heartbeat.of(message)
            if heartbeat is None:
                continue
            # Its instances have ended: they can be given away without waiting for the lease.
            if heartbeat.has_left:
                self.sessions.left(heartbeat.session)
                self.changed.set()
                continue
            # Asked before ``heard``, which makes it the newest: a worker that has joined, or
            # returned in another session, may get instances.
            if self.sessions.newest.get(heartbeat.session.worker) != heartbeat.session:
                self.changed.set()
            self.sessions.heard(heartbeat.session, now_s)
            if heartbeat.is_draining and heartbeat.session.worker not in self.sessions.draining:
                self.sessions.drain(heartbeat.session)
                self.changed.set()
            # Only this process's own heartbeats tell how far it has caught up: the ``sent_s`` of
            # another process is a time of another clock.
            if heartbeat.sent_s is not None and heartbeat.session.session == self._own_session():
                self.sessions.caught_up(min(heartbeat.sent_s, now_s))
                if self.sessions.over():
                    self.changed.set()
        if messages:
            # They are never needed again: a new leader supposes what it must, and waits for new
            # ones.
            consumer.ack_cumulative(messages[-1])

    def _follow_election(self, consumer: Consumer[bytes]) -> None:
        # A consumer without a connection may be active no more, and would be the last to hear of
        # it.
        is_active = consumer.is_active and consumer.is_connected
        if consumer.activations != self._turn:
            # Between the two turns another consumer was active. It received and acknowledged
            # heartbeats that this worker will never see, so its knowledge of sessions is void.
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
            # At once, not when the task ends: a REST request in between must get ``NotLeader``, not
            # a writer that is being closed.
            self._writers = None

    # --- leading

    async def _lead_on(self) -> None:
        """Take both topics, then decide and publish until that fails or the task is cancelled."""
        writers: tuple[LogWriter, LogWriter] | None = None
        try:
            async with AsyncExitStack() as stack:
                # Functions first, then assignments; the producers fence those of an earlier leader.
                # If the second topic cannot be taken, leaving the stack gives the first one back.
                writers = (
                    await self._functions.writer(stack, TAKE_TIMEOUT_S),
                    await self._assignments.writer(stack, TAKE_TIMEOUT_S),
                )
                self.sessions = WorkerSessions(self._lease_s)
                # The assignments are read to their end by now: no earlier leader can have assigned
                # anything to a session that is not among them.
                self.sessions.suppose(
                    {
                        Session(each.worker, each.session)
                        for each in self._assignments.records.values()
                    },
                    self._clock.monotonic(),
                )
                # Only now are REST requests accepted: with both topics, and with all that is stored
                # in them.
                self._writers = writers
                log.info("worker leads", extra={"worker": str(self._me)})
                # Every live worker sends a heartbeat within this time. Without it the first
                # decision would give all instances to the workers that were heard first.
                await asyncio.sleep(self._lease_s / BEATS_A_LEASE)
                while True:
                    # Cleared before the step: what changes during it causes another one at once.
                    self.changed.clear()
                    next_s = await self._step(writers[1])
                    with suppress(TimeoutError):
                        async with asyncio.timeout(next_s):
                            await self.changed.wait()
        except (ClientError, TimeoutError) as error:
            log.warning("worker leads no more", extra={"reason": str(error) or "timeout"})
            await asyncio.sleep(RETAKE_S)
        finally:
            # A cancelled lead may take a while to close its producers. By then the worker may lead
            # again, with other writers, which must stay.
            if self._writers is writers:
                self._writers = None

    async def _step(self, writer: LogWriter) -> float:
        """Decide and publish once; returns after how many seconds at most to do so again."""
        for session in self.sessions.forget():
            log.info("worker is gone", extra={"worker": session.worker})
        # A first decision without answers, to learn which workers must be asked; nothing of it is
        # published.
        orders = self._decide({})
        is_asking = bool(orders.ask)
        if is_asking:
            # Instances that are to move were stopped in the log. The second decision knows which of
            # them have ended.
            found = await asyncio.gather(*[self._ask(worker) for worker in orders.ask])
            answers = dict(zip(orders.ask, found, strict=True))
            orders = self._decide(answers)
        sends = [
            writer.put(each.instance, each.encode(), {SESSION_PROPERTY: each.session})
            for each in orders.assign
        ]
        # All at once: the order of different keys does not matter.
        sends += [writer.remove(name) for name in orders.remove]
        if not sends:
            return ASK_S if is_asking else IDLE_S
        began_s = self._clock.monotonic()
        # One that is fenced raises here and ends the lead; the others may be stored or not. The
        # next leader decides from what is in the log.
        positions = await asyncio.gather(*sends)
        # The next decision must see what this one published, or it would publish it again.
        await self._assignments.reach(max(positions))
        self.schedules.add((self._clock.monotonic() - began_s) * 1000)
        # There may be a next step at once: what was stopped now has to be asked for.
        return 0.0

    def _decide(self, answers: Mapping[str, WorkerInstances | None]) -> Orders:
        began_s = self._clock.monotonic()
        ended: set[InstanceName] = set()
        for name, each in self._assignments.records.items():
            answer = answers.get(each.worker)
            # A worker that has not read the stop yet may not have begun to end the instance.
            if answer is None or answer.position < each.position:
                continue
            # Only what is stopped in the log: an instance that ended by itself is started again
            # there.
            if each.is_stopped and name not in answer.present:
                ended.add(name)
        orders = decide(
            Facts(
                self._functions.records,
                self._assignments.records,
                self.sessions,
                ended,
                self.sessions.draining,
                self._balances,
            )
        )
        self.strategies.add((self._clock.monotonic() - began_s) * 1000)
        return orders
