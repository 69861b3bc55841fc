"""Whether a client is still there: PING and PONG at every keep-alive interval, and on demand.

A client whose socket is not read cannot be heard, and counts as alive. One that does not keep up
with what it is sent must at least take something: what is queued for a dead client would keep the
connection, and its consumers, for as long as the kernel tries to send it. So it is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from geminga_broker.sessions.back_pressure import BackPressure
from geminga_broker.sessions.outbox import Outbox
from geminga_protocol.pulsar.commands import PING


@dataclass(slots=True, eq=False)
class Liveness:
    """Watches one client from the end of its handshake on."""

    outbox: Outbox
    pressure: BackPressure
    # Between two PINGs, and how long ``is_alive`` waits for an answer.
    keepalive_s: float
    check_s: float
    # Ends the connection, and logs why.
    give_up: Callable[[str], None]
    # True at first, so that the first check does not end a client that was quiet since its
    # handshake.
    _heard_since_ping: bool = field(default=True, init=False)
    # ``is_alive`` waits for ``_heard``. The flag spares the event its work with every read.
    _is_asked: bool = field(default=False, init=False)
    _heard: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # Unsent bytes at the last keep-alive, of a client that does not keep up; 0 of others. The
    # session sets it back when the client has caught up.
    unsent_bytes: int = field(default=0, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def begin(self) -> None:
        """Send the next PING after one keep-alive interval, and so on from then."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.keepalive_s, self._check)

    def heard(self) -> None:
        """Note that something came from the client. HOT: called with every read."""
        self._heard_since_ping = True
        if self._is_asked:
            self._is_asked = False
            self._heard.set()

    def end(self) -> None:
        """Stop watching: the connection is over."""
        self._heard.set()
        if self._timer is not None:
            self._timer.cancel()

    async def is_alive(self) -> bool:
        """Check whether the client is there; close the connection and return False if it is not.

        A client that keeps up is sent a PING. One that does not keep up has to take something
        instead. One that is not read for other reasons counts as alive: its PONG could not be
        heard.
        """
        if self.outbox.is_closed:
            return False
        if self.pressure.is_client_slow:
            unsent_bytes = self.outbox.unsent_bytes()
            await asyncio.sleep(self.check_s)
            # The client may have caught up while this waited.
            if self._is_behind() and self.outbox.unsent_bytes() >= unsent_bytes:
                self.give_up("no sign of life")
        elif not self.pressure.is_reading_paused:
            # Several callers may wait at once: each sends a PING, and the first sign of life
            # answers all.
            self._is_asked = True
            # Before the PING goes out. Whatever comes from now on counts, an answer or not.
            self._heard.clear()
            self.outbox.send(PING)
            try:
                async with asyncio.timeout(self.check_s):
                    await self._heard.wait()
            except TimeoutError:
                self.give_up("no sign of life")
        return not self.outbox.is_closed

    def _is_behind(self) -> bool:
        """Whether the client is only expected to take what was written: it is slow, or the
        connection is closed and waits for it."""
        return self.pressure.is_client_slow or self.outbox.is_closed

    def _check(self) -> None:
        """At each keep-alive interval: give up on a client that was not heard since the last one,
        or, if it is not read for its own slowness, took nothing; send a PING to others."""
        unsent_bytes = self.outbox.unsent_bytes() if self._is_behind() else 0
        if unsent_bytes:
            # It had unsent bytes a whole interval ago, and took none of them.
            is_dead = unsent_bytes >= self.unsent_bytes > 0
        else:
            # What it may have said since is not read while reading is paused.
            is_dead = not self._heard_since_ping and not self.pressure.is_reading_paused
        self.unsent_bytes = unsent_bytes
        if is_dead:
            self.give_up("no sign of life")
            return
        # Before the PING: what comes in reaction to it sets it again.
        self._heard_since_ping = False
        # Also to a client that is not read: its PONG is found in the socket when reading goes on.
        self.outbox.send(PING)
        self.begin()
