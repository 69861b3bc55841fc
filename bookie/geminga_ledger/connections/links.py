"""The links to all bookies: one shared V2 connection per bookie and purpose, made when needed.

A link outlives its connections. Writers attach to it and stay; when a connection breaks it is made
again, and each writer is then called to send what the bookie has not stored (a bookie stores the
same entry again without harm). Every attempt looks up anew where the bookie listens, so that one
that came back on another port is found.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from enum import Enum
from random import Random
from typing import Any

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.dialer import CLOSING, Dialer, MakeTls, Resolve
from geminga_ledger.connections.link_base import BookieStream, LinkBase, LinkServices
from geminga_ledger.connections.outbox import Outbox
from geminga_ledger.connections.v2_connection import AddListener, ReadListener, V2Connection
from geminga_ledger.connections.v3_link import V3Link
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.replication.bookie_health import BookieHealth
from geminga_protocol.bookkeeper.v2 import encode_read
from geminga_runtime.clock import Clock
from geminga_runtime.network import Network
from geminga_runtime.service import Service

log = logging.getLogger(__name__)


class Purpose(Enum):
    """What a connection is for. V2 answers do not say which of two equal requests they answer, so
    fencing reads and recovery adds must not meet a live writer's or reader's requests."""

    ORDINARY = "ordinary"
    RECOVERY = "recovery"


Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[object]]


# Between two turns of the event loop a link is in one of these states:
#
#     idle        no connection, nothing needs one
#     connecting  ``_connecting`` runs: a writer is attached, or a waiter waits
#     connected   ``_connection`` is set, and ``outbox`` sends through its transport
#     closed      ``_is_closed``: for good
#
# A broken connection leads from connected to connecting where a writer is attached, else to idle.
class BookieLink(LinkBase[V2Connection]):
    """One bookie, for one purpose. Used through ``BookieLinks.link``."""

    def __init__(self, bookie_id: str, services: LinkServices, spawn: Spawn) -> None:
        super().__init__(bookie_id, services)
        self.outbox = Outbox(
            unsent_bytes_max=self._config.unsent_bytes_max, on_overflow=self._drop_laggard
        )
        self._spawn = spawn
        # By ledger: its writer, and the bookie's slot in that writer's ensemble.
        self._adders: dict[int, tuple[AddListener, int]] = {}
        self._connected_at_s = 0.0
        # The task that connects, while there is no connection and one is needed. At most one, so
        # that there is never a second connection for the same purpose.
        self._connecting: asyncio.Task[object] | None = None
        # Of ``connected``: done at the next connection, failed by the next failed attempt.
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def writing(self) -> list[int]:
        """The ledgers whose writers are attached."""
        return list(self._adders)

    def attach(self, ledger_id: int, listener: AddListener, bookie: int) -> None:
        """Answers to adds of the ledger go to ``listener``, until it detaches.

        A ledger has one writer: a listener that was attached for it before hears no more.
        """
        # Where there is a connection, ``bookie_connected`` is not called for it: a new writer has
        # sent nothing yet, and one that brings this bookie in as a newcomer calls it itself
        # (``admit``).
        self._adders[ledger_id] = listener, bookie
        if self._connection is None:
            self._connect_soon()

    def detach(self, ledger_id: int, listener: AddListener) -> None:
        """``listener`` is done with the ledger; no error if it is not attached."""
        attached = self._adders.get(ledger_id)
        # Another listener may have been attached for the ledger since.
        if attached is not None and attached[0] is listener:
            del self._adders[ledger_id]

    def tell_absent(self, ledger_id: int) -> None:
        """Tell the ledger's writer, if one is attached, that this bookie is not registered."""
        attached = self._adders.get(ledger_id)
        if attached is not None:
            attached[0].bookie_absent(attached[1])

    async def connected(self) -> None:
        """Return when there is a connection, after one attempt where there is none.

        Raises ``BookieUnavailable`` when the attempt fails.
        """
        if self._connection is not None:
            return
        if self._is_closed:
            raise BookieUnavailable(self.bookie_id, CLOSING)
        # Registered before the attempt begins: it ends for this waiter, too.
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._connect_soon()
        try:
            await waiter
        finally:
            # Only there when cancelled: the connecting task would go on for this waiter.
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def read(
        self,
        ledger_id: int,
        entry_id: int,
        listener: ReadListener,
        bookie: int,
        *,
        flags: int = 0,
        master_key: bytes | None = None,
    ) -> None:
        """Request an entry; ``listener`` is called exactly once for it, never before this returns.

        Raises ``BookieUnavailable`` where there is no connection now.
        """
        if self._connection is None:
            raise BookieUnavailable(self.bookie_id, "not connected")
        # Expected before it is sent; both in one turn of the loop, so that the order in which
        # readers are answered is the order of the requests.
        self._connection.expect_read(ledger_id, entry_id, listener, bookie)
        outbox = self.outbox
        if not outbox.chunks:
            outbox.wake()
        outbox.chunks.append(encode_read(ledger_id, entry_id, flags, master_key))

    def suspect(self, silent_s: float) -> None:
        """The bookie has owed an answer for ``silent_s``: try a new connection.

        A connection younger than that is not to blame and stays.
        """
        if self._connection is None:
            return
        # Else several writers and readers that wait for the same bookie would each end the
        # connection that was made because of the one before.
        if self._clock.monotonic() - self._connected_at_s >= silent_s:
            log.warning(
                "bookie does not answer, reconnecting",
                extra={"bookie": self.bookie_id, "silent_s": silent_s},
            )
            self._lose(self._connection)

    def close(self) -> None:
        """Give the connection up, for good; writers are told."""
        self._is_closed = True
        # Taken out first: a writer that fails detaches, while this goes through them.
        adders, self._adders = self._adders, {}
        for listener, _ in adders.values():
            listener.link_closed()
        self._fail_waiters(BookieUnavailable(self.bookie_id, CLOSING))
        super().close()

    def _drop_laggard(self) -> None:
        log.warning(
            "bookie takes its bytes too slowly, reconnecting",
            extra={"bookie": self.bookie_id, "unsent_bytes": self.outbox.held_bytes},
        )
        if self._connection is not None:
            self._lose(self._connection)

    def _lose(self, connection: BookieStream, why: str = "the connection broke") -> None:
        # The end of a connection that was given up before is no news.
        if connection is not self._connection:
            return
        self._connection = None
        # Before the next attempt: what writers append meanwhile is thrown away, and sent again from
        # their own list when there is a connection.
        self.outbox.detach()
        log.info("bookie connection lost", extra={"bookie": self.bookie_id})
        if self._adders:
            self._connect_soon()
        # Last: readers that lose their answer may ask this link again.
        connection.retire(why)

    def _connect_soon(self) -> None:
        if self._connecting is None and not self._is_closed:
            self._connecting = self._spawn(self._keep_trying(), f"connect to {self.bookie_id}")

    async def _keep_trying(self) -> None:
        """Connect, again and again as long as a writer or a waiter needs it."""
        try:
            # Asked anew after each pause: the writers may have detached meanwhile, and the waiters
            # have given up.
            while self._connection is None and (self._adders or self._waiters):
                try:
                    transport, _ = await self._dial(
                        lambda: V2Connection(
                            self.bookie_id,
                            self._lose,
                            adders=self._adders,
                            outbox=self.outbox,
                            frame_bytes_max=self._config.frame_bytes_max,
                        )
                    )
                except BookieUnavailable as error:
                    # Waiters get the result of one attempt; writers stay, and hear of each.
                    self._fail_waiters(error)
                    for listener, bookie in list(self._adders.values()):
                        listener.bookie_unreachable(bookie)
                    await asyncio.sleep(self._backoff.next_s())
                else:
                    transport.set_write_buffer_limits(high=self._config.write_buffer_bytes_high)
                    self._connected_at_s = self._clock.monotonic()
                    # Before the writers: what they send now must leave over this connection.
                    self.outbox.attach(transport)
                    # Writers first: what they send again is older than what waiters will ask for.
                    for listener, bookie in list(self._adders.values()):
                        listener.bookie_connected(bookie)
                    # Taken out before they are woken: a waiter that comes from now on waits for the
                    # next attempt.
                    waiters, self._waiters = self._waiters, []
                    for waiter in waiters:
                        if not waiter.done():
                            waiter.set_result(None)
        except Exception as error:
            # A mistake of ours ends this task: waiters must not wait for it for good.
            self._fail_waiters(BookieUnavailable(self.bookie_id, f"connecting failed: {error!r}"))
            raise
        finally:
            # No ``await`` since the loop ended: an ``attach`` either came before, and was counted,
            # or finds this task gone and starts the next.
            self._connecting = None

    def _fail_waiters(self, error: BookieUnavailable) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)


class BookieLinks(Service):
    """All links of this process.

    Closing it closes every connection, for good: a request after that is refused, also by the link
    to a bookie that was not needed before.
    """

    def __init__(
        self,
        resolve: Resolve,
        *,
        network: Network,
        clock: Clock,
        random: Random,
        config: LedgerConfig,
        tls: MakeTls | None = None,
    ) -> None:
        super().__init__()
        self.health = BookieHealth(
            doubt_s=config.doubt_s,
            errors_max=config.quarantine_errors_max,
            interval_s=config.quarantine_interval_s,
            quarantine_s=config.quarantine_s,
        )
        dialer = Dialer(resolve, network, timeout_s=config.connect_timeout_s, tls=tls)
        # One health for all: what a V2 link learns of a bookie, its V3 link heeds, too.
        self._services = LinkServices(dialer, clock, random, config, self.health)
        self._clock = clock
        # Made by their first use, never removed: both grow with the bookies that ever were in an
        # ensemble we touched: tens, not thousands.
        self._links: dict[tuple[str, Purpose], BookieLink] = {}
        self._v3_links: dict[str, V3Link] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        def close_links() -> None:
            links: list[BookieLink | V3Link] = [*self._links.values(), *self._v3_links.values()]
            for link in links:
                link.close()

        stack.callback(close_links)

    def link(self, bookie_id: str, purpose: Purpose = Purpose.ORDINARY) -> BookieLink:
        """The link to a bookie; it connects when a writer attaches or a connection is awaited."""
        key = bookie_id, purpose
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = BookieLink(
                bookie_id, self._services, lambda work, name: self.spawn(work, name=name)
            )
            if self._is_closing:
                link.close()
        return link

    def v3_link(self, bookie_id: str) -> V3Link:
        """The link for what V2 cannot express; it connects at its first request."""
        link = self._v3_links.get(bookie_id)
        if link is None:
            link = self._v3_links[bookie_id] = V3Link(bookie_id, self._services)
            if self._is_closing:
                link.close()
        return link

    @property
    def writing(self) -> list[BookieLink]:
        """The links that writers are attached to."""
        return [each for each in self._links.values() if each.writing]

    def is_down(self, bookie_id: str) -> bool:
        """Whether the bookie could not be reached a moment ago, or gave a reason for doubt."""
        # Links for recovery do not count: they connect rarely, and know less.
        link = self._links.get((bookie_id, Purpose.ORDINARY))
        if link is not None:
            return link.is_doubtful
        return self.health.is_doubtful(bookie_id, self._clock.monotonic())

    def is_quarantined(self, bookie_id: str) -> bool:
        """Whether the bookie has failed so often that new ledgers should go elsewhere."""
        return self.health.is_quarantined(bookie_id, self._clock.monotonic())
