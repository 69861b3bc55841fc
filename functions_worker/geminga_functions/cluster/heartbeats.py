"""The heartbeats of a worker, which are its lease to run instances.

A heartbeat is an empty message on the topic ``coordinate``. A stored heartbeat proves that the real
owner of the topic heard of this worker after the heartbeat was sent: a broker that was paused and
lost the topic can store nothing. So instances may run for one lease after the moment of sending.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from geminga import Client, ClientError, Message, Producer
from geminga_functions.cluster.sessions import Session
from geminga_runtime.clock import Clock
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

WORKER_PROPERTY = "worker"
SESSION_PROPERTY = "session"
SENT_PROPERTY = "sent_s"
LEFT_PROPERTY = "left"
DRAINING_PROPERTY = "draining"
# Two heartbeats may be lost before a lease ends.
BEATS_A_LEASE = 3
# Leaving saves others the wait for the lease, and is worth no longer delay of a shutdown.
LEAVE_TIMEOUT_S = 2.0

OnLease = Callable[[str, float], None]


#   beat 1    beat 2    beat 3    beat 4
#   |---------|---------|---------|-------->    one each lease_s / BEATS_A_LEASE
#   [=========== lease ===========)             from the moment when beat 1 was sent
#             [=========== lease ===========)   the next one extends it, if it is stored in time
#
# If neither beat 2 nor beat 3 is stored in time, the session ends with the lease of beat 1.
class Heartbeats(Service):
    """Publishes heartbeats as long as it is open.

    ``on_lease`` is called with the session, and the time of the monotonic clock until which its
    instances may run. A session begins with the first heartbeat that is stored, and ends with its
    lease: the next heartbeat begins another session, named by ``make_session``, which never returns
    a name twice.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        worker: str,
        *,
        lease_s: float,
        clock: Clock,
        on_lease: OnLease,
        make_session: Callable[[], str],
    ) -> None:
        super().__init__()
        self._client = client
        self._topic = topic
        self._worker = worker
        self._lease_s = lease_s
        self._clock = clock
        self._on_lease = on_lease
        self._make_session = make_session
        # Whether this worker asks every leader for no instances. It never takes this back; a worker
        # that is started again takes instances.
        self.is_draining = False
        self._beats_now = asyncio.Event()
        # The session of the last heartbeat that was sent, and the end of the lease by the monotonic
        # clock. The lease only grows, and only ``_renew`` writes both.
        self._session = ""
        self._lease_until_s = 0.0

    def drain(self) -> None:
        """Ask the leader, from now on, to leave this worker without instances."""
        self.is_draining = True
        self._beats_now.set()

    async def _open(self, stack: AsyncExitStack) -> None:  # noqa: ARG002 - nothing stays open
        self.spawn_lasting(self._beat, name="heartbeats")

    async def _beat(self) -> None:
        while True:
            try:
                # The time-out of a send is one lease: a later receipt would renew nothing.
                async with self._client.producer(
                    self._topic, batching=None, send_timeout_s=self._lease_s
                ) as producer:
                    while True:
                        await self._renew(producer)
            except ClientError as error:
                log.warning("no broker takes heartbeats", extra={"reason": str(error)})
                await asyncio.sleep(self._lease_s / BEATS_A_LEASE)

    async def _renew(self, producer: Producer[bytes]) -> None:
        """Send a heartbeat, then wait until the next one is due."""
        # Taken before the send, however long it takes: the leader counts from the receipt, which is
        # later.
        sent_s = self._clock.monotonic()
        if sent_s >= self._lease_until_s:
            # Also where the last heartbeat was stored too late: nothing may run in that session any
            # more.
            self._session = self._make_session()
        properties = {
            WORKER_PROPERTY: self._worker,
            SESSION_PROPERTY: self._session,
            SENT_PROPERTY: repr(sent_s),
        }
        if self.is_draining:
            properties[DRAINING_PROPERTY] = "true"
        try:
            await producer.send(b"", properties=properties)
        except ClientError as error:
            log.warning("heartbeat is not stored", extra={"reason": str(error)})
        else:
            until_s = sent_s + self._lease_s
            # A lease that ended before its renewal was stored stays ended, even if the heartbeat
            # was sent in time: meanwhile the leader may have assigned the instances to others.
            renewable_until_s = until_s if sent_s >= self._lease_until_s else self._lease_until_s
            # Asked after the receipt: a process that was paused during the send comes back here
            # with a lease that is over.
            if self._clock.monotonic() < renewable_until_s:
                self._lease_until_s = until_s
                self._on_lease(self._session, until_s)
        # Of the period, what the send has left. A request to drain cuts the wait short.
        rest_s = sent_s + self._lease_s / BEATS_A_LEASE - self._clock.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, rest_s)):
                await self._beats_now.wait()
        self._beats_now.clear()

    async def leave(self) -> None:
        """Report that no instance runs here: the leader need not wait for the lease to end."""
        properties = {
            WORKER_PROPERTY: self._worker,
            SESSION_PROPERTY: self._session,
            LEFT_PROPERTY: "true",
        }
        try:
            # A producer of its own: that of the heartbeats has been closed with its task.
            async with (
                asyncio.timeout(LEAVE_TIMEOUT_S),
                self._client.producer(self._topic, batching=None) as producer,
            ):
                await producer.send(b"", properties=properties)
        except (ClientError, TimeoutError) as error:
            log.warning("others are not told that this worker ends", extra={"reason": str(error)})


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat that was received."""

    session: Session
    # The sender's monotonic clock when it sent the heartbeat, in seconds; None if it did not say.
    sent_s: float | None
    # The worker runs nothing any more in this session.
    has_left: bool
    # The worker asks for no instances.
    is_draining: bool

    @classmethod
    def of(cls, message: Message[bytes]) -> Heartbeat | None:
        """The heartbeat in ``message``; None if the message is none."""
        properties = message.properties
        # Another program may publish to this topic.
        worker, session = properties.get(WORKER_PROPERTY), properties.get(SESSION_PROPERTY)
        if worker is None or session is None:
            return None
        try:
            sent_s = float(properties[SENT_PROPERTY])
        # Such a heartbeat is still a lease: only the leader's own ones need the time.
        except (KeyError, ValueError):
            sent_s = None
        return cls(
            Session(worker, session),
            sent_s,
            has_left=LEFT_PROPERTY in properties,
            is_draining=DRAINING_PROPERTY in properties,
        )
