"""What a reader knows of its ledger as a whole: the metadata, and how far it is confirmed.

Both only move forward. A reader of an open ledger waits for more at a bookie, over V3
(``long_poll``). Meanwhile it watches the metadata in ZooKeeper: the ledger may be closed, or its
writer may go to other bookies, and a bookie that the writer has left would never answer.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.v3_link import V3Link
from geminga_ledger.entries.digests import entry_decoder, explicit_lac_decoder
from geminga_ledger.metadata.store import LedgerStore, StoredMetadata
from geminga_ledger.reading.lac_read import LacRead
from geminga_ledger.reading.long_poll import LongPoll
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.records.ledgers.ledger_metadata import NO_ENTRY, LedgerMetadata, LedgerState
from geminga_runtime.coordination import CoordinationError

log = logging.getLogger(__name__)

# ZooKeeper has so long to give the metadata to a reader that waits for entries; where it does not,
# the reader goes on without a watch ("blind") for so long, then tries again.
_WATCH_S = 1.0
_BLIND_S = 5.0

# A reader that waits for entry 8 while its ledger is open:
#
#     reader                 bookie                       ZooKeeper
#     watch the metadata ------------------------------------->
#     poll: more than 7? ------->  (keeps it)
#                                  entry 9 arrives: it carries that 8 is confirmed
#     8, and the entry   <-------
#     poll: more than 8? ------->  (keeps it)
#                                               the writer goes to other bookies, or closes
#     the metadata changed <-----------------------------------
#     (cancels the poll; watches again; polls the new bookies, or ends)

ResultT = TypeVar("ResultT")


class LedgerView:
    """``last_confirmed`` is the last entry that may be read (-1: none); it never goes back."""

    def __init__(
        self,
        stored: StoredMetadata,
        *,
        last_confirmed: int,
        length_bytes: int,
        link: Callable[[str], V3Link],
        store: LedgerStore,
        config: LedgerConfig,
    ) -> None:
        self.ledger_id = stored.ledger_id
        self.last_confirmed = last_confirmed
        # Of the whole ledger where it is closed; else as far as it was known at the opening.
        self.length_bytes = length_bytes
        self._stored = stored
        self._link = link
        self._store = store
        self._config = config
        # Set when the metadata in ZooKeeper has changed. None until a reader waits for the first
        # time: most readers never do, and need no watch.
        self._changed: asyncio.Event | None = None
        # By the loop's time: until then ZooKeeper, which did not answer, is not asked again.
        self._blind_until_s = -math.inf
        # After which entry bookies were polled last, and how often for the same.
        self._polled_after = NO_ENTRY
        self._polls = 0
        # An entry that came with the news that it is confirmed, with its id.
        self._at_hand: tuple[int, bytes] | None = None
        # Set when ``last_confirmed`` moves, and cleared before each wait.
        self._news = asyncio.Event()

    @property
    def metadata(self) -> LedgerMetadata:
        """As it was read last."""
        return self._stored.metadata

    @property
    def is_closed(self) -> bool:
        """Whether the ledger was closed when its metadata was read last."""
        return self.metadata.state is LedgerState.CLOSED

    @property
    def is_old(self) -> bool:
        """Whether the metadata is known to have changed since it was read."""
        return self._changed is not None and self._changed.is_set()

    @property
    def password(self) -> bytes:
        """The metadata's or, where it has none, that of the config."""
        password = self.metadata.password
        return self._config.password if password is None else password

    def advance(self, last_confirmed: int) -> None:
        """The ledger is confirmed up to here at least."""
        if last_confirmed > self.last_confirmed:
            self.last_confirmed = last_confirmed
            self._news.set()

    def take_entry(self, entry_id: int) -> bytes | None:
        """The entry where it came with the news that it is confirmed: whole, and not checked."""
        at_hand, self._at_hand = self._at_hand, None
        return at_hand[1] if at_hand is not None and at_hand[0] == entry_id else None

    async def ask_bookies(self) -> int:
        """Ask all bookies of the last ensemble how far it is confirmed; returns ``last_confirmed``.

        A bookie knows it from its newest entry and from the explicit LAC, whichever is more. Raises
        ``BookieUnavailable`` where too few answer.
        """
        # A closed ledger's end is in its metadata.
        if not self.is_closed:
            read = LacRead(
                self.ledger_id,
                *self._last_ensemble(),
                answer_timeout_s=self._config.answer_timeout_s,
                decode_entry=entry_decoder(self.metadata.digest_type, self.password),
                decode_lac=explicit_lac_decoder(self.metadata.digest_type, self.password),
            )
            self.advance(await read.run())
        return self.last_confirmed

    async def wait(self, after: int, limit: asyncio.Timeout) -> None:
        """Return, by ``limit``, when there may be news: the caller looks, and waits again.

        Raises ``NoSuchLedger``.
        """
        now_s, over_at_s = asyncio.get_running_loop().time(), limit.when()
        assert over_at_s is not None
        # Without a watch on the newest metadata: the ledger may be closed, or on other bookies.
        is_blind = self._changed is None or self.is_old
        if is_blind and now_s >= self._blind_until_s:
            # Stage 1: a watch. The next call of this function goes on with stage 2. Read and watch
            # the metadata first. That may be news by itself, so that the caller looks before it
            # waits at bookies.
            try:
                async with asyncio.timeout(_WATCH_S):
                    await self._watch()
            except (TimeoutError, CoordinationError) as error:
                log.info(
                    "metadata not watched", extra={"ledger": self.ledger_id, "error": str(error)}
                )
                self._blind_until_s = asyncio.get_running_loop().time() + _BLIND_S
            return
        # Stage 2: a long poll, in the shadow of the watch; or blind, and then not for long. A
        # reader that waits briefly, again and again, should not begin with the same bookie each
        # time: that one may hang, or know nothing.
        if after != self._polled_after:
            self._polled_after, self._polls = after, 0
        self._polls += 1
        longest_s = _BLIND_S if is_blind else self._config.long_poll_s
        poll = LongPoll(
            self.ledger_id,
            *self._last_ensemble(),
            after=after,
            timeout_s=min(over_at_s - now_s, longest_s),
            config=self._config,
            turn=self._polls - 1,
        )
        news = await self._unless_moved(poll.run())
        if news is None:
            return
        # Kept before ``advance``: the reader that wakes takes it.
        if news.entry is not None:
            self._at_hand = after + 1, news.entry
        self.advance(news.last_confirmed)
        if news.last_confirmed <= after:
            # No bookie has news, all of them refused or are away: ask again, but not at once.
            await self._unless_moved(asyncio.sleep(self._config.poll_interval_s))

    async def renew(self) -> bool:
        """Read the metadata again; whether it is another one. Raises ``NoSuchLedger``,
        ``CoordinationError``."""
        before = self._stored
        # A reader that has a watch sets the next one with this.
        if self._changed is None:
            self._take(await self._store.read(self.ledger_id))
        else:
            await self._watch()
        return self._stored.version != before.version

    def _take(self, stored: StoredMetadata) -> None:
        """Take over metadata, unless they were read before what is known already."""
        # Answers may overtake each other: a reading that began earlier may end later.
        if stored.version <= self._stored.version:
            return
        is_end = stored.metadata.state is LedgerState.CLOSED and not self.is_closed
        self._stored = stored
        if is_end:
            self.length_bytes = self.metadata.length
            self.advance(self.metadata.last_entry)
        elif not self.is_closed:
            # What comes before a fragment was confirmed when it began.
            self.advance(self.metadata.fragments[-1].first_entry - 1)

    async def _watch(self) -> None:
        """Read the metadata again, and watch for its next change."""
        stored, self._changed = await self._store.read_watched(self.ledger_id)
        self._take(stored)

    async def _unless_moved(self, work: Coroutine[Any, Any, ResultT]) -> ResultT | None:
        """The result of ``work``; None where the metadata changes, or ``advance`` moves, first."""
        # No ``await`` from the caller's look at ``last_confirmed`` to here: a poll misses no news.
        self._news.clear()
        events = [self._news]
        # One that is set already would end each poll at once: a blind reader polls without it.
        if self._changed is not None and not self._changed.is_set():
            events.append(self._changed)
        loop = asyncio.get_running_loop()
        working = loop.create_task(work, name=f"tail ledger {self.ledger_id}")
        hearing = [
            loop.create_task(event.wait(), name=f"hear of ledger {self.ledger_id}")
            for event in events
        ]
        try:
            # Where the work is done as well, its result counts.
            await asyncio.wait([working, *hearing], return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            # Also the poll that lost: it must not hold its place at the bookies for its whole time.
            for task in (working, *hearing):
                task.cancel()
            await asyncio.gather(working, *hearing, return_exceptions=True)

    def _last_ensemble(self) -> tuple[Quorum, list[V3Link]]:
        metadata = self.metadata
        return (
            Quorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum),
            [self._link(bookie_id) for bookie_id in metadata.fragments[-1].ensemble],
        )
