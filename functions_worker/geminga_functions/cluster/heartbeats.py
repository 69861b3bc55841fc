"""The heartbeats of a worker, which are its lease to run instances.

A heartbeat is an empty message on the topic ``coordinate``. That it was stored proves that the real
owner of the topic heard of this worker after it was sent: an owner that was paused and is none any
more gets nothing stored. So instances may run for the time of a lease after the moment of sending.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

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
LEAVE_TIMEOUT_S = 2.0

OnLease = Callable[[str, float], None]


class Heartbeats(Service):
    """Publishes heartbeats as long as it is open.

    ``on_lease`` is called with the session, and until when of the monotonic clock its instances may
    run. A session begins with the first heartbeat that is stored, and ends with its lease: the next
    heartbeat begins another one, named by ``make_session``, which repeats no name.
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
        # Whether this worker asks the leader, whichever that is, for no instances: as long as the
        # worker lives, whose successor takes instances again.
        self.is_draining = False
        self._beats_now = asyncio.Event()
        self._session = ""
        self._lease_until_s = 0.0

    @property
    def session(self) -> str:
        """The session that has a lease at this moment; empty where none has."""
        return self._session if self._clock.monotonic() < self._lease_until_s else ""

    def drain(self) -> None:
        """Say from now on that this worker is to be left without instances."""
        self.is_draining = True
        self._beats_now.set()

    async def _open_parts(self) -> None:
        await super()._open_parts()
        self.spawn_lasting(self._beat, name="heartbeats")

    async def _beat(self) -> None:
        while True:
            try:
                await self._beat_on()
            except ClientError as error:
                log.warning("no broker takes heartbeats", extra={"reason": str(error)})
                await asyncio.sleep(self._lease_s / BEATS_A_LEASE)

    async def _beat_on(self) -> None:
        async with self._client.producer(
            self._topic, batching=None, send_timeout_s=self._lease_s
        ) as producer:
            while True:
                sent_s = self._clock.monotonic()
                if sent_s >= self._lease_until_s:
                    self._session = self._make_session()
                await self._send(producer, sent_s)
                rest_s = sent_s + self._lease_s / BEATS_A_LEASE - self._clock.monotonic()
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, rest_s)):
                        await self._beats_now.wait()
                self._beats_now.clear()

    async def _send(self, producer: Producer[bytes], sent_s: float) -> None:
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
            return
        until_s = sent_s + self._lease_s
        # A lease that ended before its renewal was stored stays ended, also where the heartbeat was
        # sent in time: the leader may have given the instances of this session away meanwhile.
        renewable_until_s = until_s if sent_s >= self._lease_until_s else self._lease_until_s
        if self._clock.monotonic() < renewable_until_s:
            self._lease_until_s = until_s
            self._on_lease(self._session, until_s)

    async def leave(self) -> None:
        """Say that nothing runs here any more, so that no worker waits for the end of the lease."""
        properties = {
            WORKER_PROPERTY: self._worker,
            SESSION_PROPERTY: self._session,
            LEFT_PROPERTY: "true",
        }
        try:
            async with (
                asyncio.timeout(LEAVE_TIMEOUT_S),
                self._client.producer(self._topic, batching=None) as producer,
            ):
                await producer.send(b"", properties=properties)
        except (ClientError, TimeoutError) as error:
            log.warning("others are not told that this worker ends", extra={"reason": str(error)})


class Heartbeat:
    """A heartbeat that was received: whose, of which session, and what it says."""

    def __init__(
        self, session: Session, sent_s: float | None, *, has_left: bool, is_draining: bool
    ) -> None:
        self.session = session
        self.sent_s = sent_s
        self.has_left = has_left
        self.is_draining = is_draining

    @classmethod
    def of(cls, message: Message[bytes]) -> Heartbeat | None:
        """None for a message that is no heartbeat."""
        properties = message.properties
        worker, session = properties.get(WORKER_PROPERTY), properties.get(SESSION_PROPERTY)
        if worker is None or session is None:
            return None
        try:
            sent_s = float(properties[SENT_PROPERTY])
        except (KeyError, ValueError):
            sent_s = None
        return cls(
            Session(worker, session),
            sent_s,
            has_left=LEFT_PROPERTY in properties,
            is_draining=DRAINING_PROPERTY in properties,
        )
