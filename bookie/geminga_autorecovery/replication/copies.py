"""Copies of single entries on single bookies: read as they are stored, checked, stored elsewhere.

Everything that auto-recovery needs of ``geminga_ledger``'s connections is here. An entry is read
from one named bookie, not from whichever has it, and keeps every byte, its digest included.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from geminga_autorecovery.decisions.findings import Flaw
from geminga_autorecovery.errors import CopyRefused
from geminga_ledger.connections.links import BookieLink, BookieLinks, Purpose
from geminga_ledger.connections.outbox import GATHER_CHUNKS_MAX
from geminga_ledger.entries.digests import Decode, entry_decoder
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.replication.recovery_rules import is_absence
from geminga_protocol.bookkeeper.codes import Flag, ReturnCode
from geminga_protocol.bookkeeper.digest import master_key
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch, refusal_of
from geminga_protocol.bookkeeper.v2 import encode_add_header
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata

log = logging.getLogger(__name__)

# As recovery does: a fenced bookie stores what has this flag, and nothing else.
COPY_FLAGS = Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY


@dataclass(frozen=True, slots=True)
class Copy:
    """One bookie's copy of an entry: its bytes, or the flaw it has, and why in words."""

    content: bytes = b""
    flaw: Flaw | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Copies:
    """Reads and stores copies over ``links``, over which nothing else adds entries.

    A bookie has ``answer_timeout_s`` to be connected to, and again for each answer.
    """

    links: BookieLinks
    answer_timeout_s: float = field(kw_only=True)

    async def read(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        wanted: Sequence[tuple[str, int]],
        *,
        decode: Decode | None = None,
    ) -> list[Copy]:
        """The copies of ``(bookie id, entry id)`` pairs, in order: the whole entries, or what
        ``decode`` makes of them.

        All are requested at once: the caller bounds how many.
        """
        timeout_s = self.answer_timeout_s
        # First connect where there is no connection yet, all at once; then ask; then wait for all
        # answers.
        links = {bookie: self.links.link(bookie) for bookie, _ in wanted}
        # By bookie: why there is no connection to it.
        reasons: dict[str, str] = {}

        async def connect(link: BookieLink) -> None:
            try:
                await _connected(link, timeout_s)
            except BookieUnavailable as error:
                reasons[link.bookie_id] = error.why

        # A bookie that could not be reached a moment ago would only cost the timeout again.
        idle = [each for each in links.values() if not each.is_connected and not each.is_down]
        await asyncio.gather(*map(connect, idle))
        for bookie_id, link in links.items():
            if not link.is_connected:
                reasons.setdefault(bookie_id, "it could not be reached a moment ago")
        # Where the digest is not known, an entry's ids are checked, and no more.
        decode = decode or entry_decoder(metadata.digest_type, metadata.password or b"")
        reads = _CopyReads(ledger_id, decode, len(wanted))
        for index, (bookie, entry_id) in enumerate(wanted):
            reads.ask(index, links[bookie], entry_id, reasons.get(bookie, "not connected"))
        return await reads.answers(timeout_s)

    async def store(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        bookie_id: str,
        entries: Mapping[int, bytes],
    ) -> None:
        """Have a bookie keep these whole entries, by entry id. Raises ``CopyRefused``.

        Not for two callers with the same ledger and bookie at once: answers to adds go to one
        listener for each ledger.
        """
        # A connection of its own: over the ordinary one, a writer's answers would be taken for
        # ours.
        link = self.links.link(bookie_id, Purpose.RECOVERY)
        try:
            await _connected(link, self.answer_timeout_s)
        except BookieUnavailable as error:
            raise CopyRefused(ledger_id, bookie_id, error.why) from error
        writes = _CopyWrites(ledger_id, link, master_key(metadata.password or b""), entries)
        await writes.run(self.answer_timeout_s)


async def _connected(link: BookieLink, timeout_s: float) -> None:
    """Return when there is a connection. Raises ``BookieUnavailable``."""
    try:
        async with asyncio.timeout(timeout_s):
            await link.connected()
    except TimeoutError as error:
        why = f"no connection within {timeout_s:g} s"
        raise BookieUnavailable(link.bookie_id, why) from error


class _CopyReads:
    """Some reads of one ledger (a ``ReadListener``); the number given with each is its index."""

    def __init__(self, ledger_id: int, decode: Decode, count: int) -> None:
        self._ledger_id = ledger_id
        self._decode = decode
        # By index: the bookie's link, and the result once there is one.
        self._links: list[BookieLink] = []
        self._copies: list[Copy | None] = [None] * count
        # Reads without a result yet. At 0, ``_finished`` is set and every place of ``_copies`` is
        # filled.
        self._open_count = count
        self._finished = asyncio.Event()

    def ask(self, index: int, link: BookieLink, entry_id: int, why_not: str) -> None:
        """Read one entry from one bookie; ``why_not`` is the reason where it is not connected."""
        self._links.append(link)
        try:
            link.read(self._ledger_id, entry_id, self, index)
        except BookieUnavailable:
            # Where the bookie is down, the result is there before ``answers`` is called.
            self._finish(index, Copy(flaw=Flaw.UNHEARD, why=why_not))

    async def answers(self, timeout_s: float) -> list[Copy]:
        """The result of each read, after ``timeout_s`` at the latest."""
        if self._open_count:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._finished.wait()
            except TimeoutError:
                silent = [index for index, copy in enumerate(self._copies) if copy is None]
                why = f"no answer within {timeout_s:g} s"
                for index in silent:
                    self._finish(index, Copy(flaw=Flaw.UNHEARD, why=why))
                # Afterwards: a connection that is given up reports its reads as lost.
                for index in silent:
                    self._links[index].suspect(timeout_s)
        return [copy for copy in self._copies if copy is not None]

    def read_answered(
        self, bookie: int, entry_id: int, return_code: int, buffer: bytes, start: int, end: int
    ) -> None:
        """A bookie's answer (``ReadListener``)."""
        # Three kinds of answers: a refusal, an entry that does not fit its digest, a good one.
        if return_code != ReturnCode.EOK:
            self._finish(bookie, _refused(return_code))
            return
        try:
            entry = self._decode(buffer, start, end, self._ledger_id, entry_id)[3]
        except EntryDigestMismatch as error:
            bookie_id = self._links[bookie].bookie_id
            log.error(  # noqa: TRY400 -- where it was found says nothing
                "damaged entry", extra={"bookie": bookie_id, "error": str(error)}
            )
            self._finish(bookie, Copy(flaw=Flaw.DAMAGED, why=str(error)))
        else:
            self._finish(bookie, Copy(entry))

    def read_lost(self, bookie: int, entry_id: int) -> None:
        """The connection broke before the answer (``ReadListener``)."""
        del entry_id
        self._finish(bookie, Copy(flaw=Flaw.UNHEARD, why="the connection broke"))

    def _finish(self, index: int, copy: Copy) -> None:
        # An answer may come after its read was given up.
        if self._copies[index] is None:
            self._copies[index] = copy
            self._open_count -= 1
            if not self._open_count:
                self._finished.set()


def _refused(return_code: int) -> Copy:
    if is_absence(return_code):
        return Copy(flaw=Flaw.ABSENT, why="the bookie says that it has none")
    try:
        # Newer bookies may have codes that are not known here.
        words = ReturnCode(return_code).name
    except ValueError:
        words = f"code {return_code}"
    # With EIO the bookie has the entry and cannot read it: it can be given it back. After any other
    # refusal it is not known whether it has one.
    flaw = Flaw.UNREADABLE if return_code == ReturnCode.EIO else Flaw.UNHEARD
    return Copy(flaw=flaw, why=f"the bookie answered {words}; its log says why")


class _CopyWrites:
    """Some adds of one ledger to one bookie (an ``AddListener``)."""

    def __init__(
        self, ledger_id: int, link: BookieLink, key: bytes, entries: Mapping[int, bytes]
    ) -> None:
        self._ledger_id = ledger_id
        self._link = link
        # The ledger's master key.
        self._key = key
        # By entry id: what is not stored yet, and is sent again over the next connection. Empty at
        # the end, or ``_failure`` says why not.
        self._unstored = dict(entries)
        self._failure: CopyRefused | None = None
        # Set at each answer and at the failure.
        self._progress = asyncio.Event()

    async def run(self, timeout_s: float) -> None:
        """Return when all are stored. Raises ``CopyRefused``, also after ``timeout_s`` seconds
        without an answer."""
        link = self._link
        # One bookie, so that its slot is always 0. From here on answers about this ledger's adds
        # come to this object, until ``detach``.
        link.attach(self._ledger_id, self, 0)
        try:
            # There is a connection already: ``attach`` reports only the next one.
            self.bookie_connected(0)
            while self._unstored and self._failure is None:
                self._progress.clear()
                try:
                    async with asyncio.timeout(timeout_s):
                        await self._progress.wait()
                except TimeoutError:
                    # No answer at all for so long: each one that comes begins the time anew.
                    link.suspect(timeout_s)
                    self._fail("no answer")
        finally:
            link.detach(self._ledger_id, self)
        if self._failure is not None:
            raise self._failure

    def adds_stored(self, bookie: int, entry_ids: list[int]) -> None:
        """The bookie has stored entries (``AddListener``)."""
        del bookie
        for entry_id in entry_ids:
            # An entry that was sent twice is answered twice.
            self._unstored.pop(entry_id, None)
        self._progress.set()

    def add_refused(self, bookie: int, entry_id: int, return_code: int) -> None:
        """The bookie will not store an entry (``AddListener``)."""
        del bookie
        # An entry that was sent again may be refused after it was stored.
        if entry_id in self._unstored:
            self._fail(str(refusal_of(return_code, self._ledger_id, entry_id)))

    def bookie_connected(self, bookie: int) -> None:
        """There is a connection, or another one: send what is not stored (``AddListener``)."""
        del bookie
        # The outbox decides when its chunks leave. Without a connection it drops them, and this is
        # called again with the next one.
        outbox = self._link.outbox
        for entry in self._unstored.values():
            chunks = outbox.chunks
            if not chunks:
                outbox.wake_for_entries()
            chunks += (encode_add_header(self._key, len(entry), COPY_FLAGS), entry)
            if len(chunks) > GATHER_CHUNKS_MAX:
                outbox.flush()

    def bookie_unreachable(self, bookie: int) -> None:
        """An attempt to connect failed (``AddListener``)."""
        del bookie
        # The first failed attempt ends it: the worker tries the ledger again later, and may choose
        # another bookie then.
        self._fail("the connection is lost")

    def bookie_absent(self, bookie: int) -> None:
        """The bookie has not been registered for a while (``AddListener``)."""
        del bookie
        self._fail("it is not registered")

    def link_closed(self) -> None:
        """The owner of all connections is closing (``AddListener``)."""
        self._fail("this process is closing its connections")

    def _fail(self, why: str) -> None:
        if self._failure is None:
            self._failure = CopyRefused(self._ledger_id, self._link.bookie_id, why)
            self._progress.set()
