"""Reads single copies, each from the one bookie that is named, and says what each is worth."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from magnetar_ledger.digests import Decode
from magnetar_ledger.errors import BookieUnavailable
from magnetar_ledger.links import BookieLink, BookieLinks
from magnetar_ledger.recovery_rules import is_absence
from magnetar_protocol.bookkeeper.codes import ReturnCode
from magnetar_protocol.bookkeeper.errors import EntryDigestMismatch

ANSWER_TIMEOUT_S = 5.0


class CopyState(Enum):
    """What became of a copy."""

    OK = "ok"
    MISSING = "missing"  # the bookie says that it has none
    CORRUPT = "corrupt"  # what it gave does not fit its digest
    UNREADABLE = "unreadable"  # it has one and cannot read it: a damaged file, a failing disk
    UNREACHABLE = "unreachable"  # it could not be asked, or did not answer


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy; ``content`` is what the decoder made of it, empty unless it is ``OK``."""

    state: CopyState
    content: bytes = b""
    why: str = ""


async def read_copies(
    links: BookieLinks, ledger_id: int, wanted: Sequence[tuple[str, int]], decode: Decode
) -> list[Copy]:
    """The copies of ``(bookie id, entry id)``, in order. Whoever calls bounds how many at once."""
    by_bookie = {bookie_id: links.link(bookie_id) for bookie_id, _ in wanted}
    reasons = await _connect(by_bookie)
    reading = _Reading(ledger_id, decode, len(wanted))
    for index, (bookie_id, entry_id) in enumerate(wanted):
        reading.ask(index, by_bookie[bookie_id], entry_id, reasons.get(bookie_id, "not connected"))
    return await reading.answers()


async def _connect(links: dict[str, BookieLink]) -> dict[str, str]:
    """Connect to all that can be; why not to the others."""
    ids = [bookie_id for bookie_id, link in links.items() if not link.is_connected]
    outcomes = await asyncio.gather(
        *(links[bookie_id].connected() for bookie_id in ids), return_exceptions=True
    )
    reasons: dict[str, str] = {}
    for bookie_id, outcome in zip(ids, outcomes, strict=True):
        if isinstance(outcome, BookieUnavailable):
            reasons[bookie_id] = outcome.why
        elif outcome is not None:
            raise outcome
    return reasons


class _Reading:
    """Some reads of one ledger (a ``ReadListener``); the number given with each is its index."""

    def __init__(self, ledger_id: int, decode: Decode, count: int) -> None:
        self._ledger_id = ledger_id
        self._decode = decode
        self._copies: list[Copy | None] = [None] * count
        self._open_count = count
        self._finished = asyncio.Event()

    def ask(self, index: int, link: BookieLink, entry_id: int, why_not: str) -> None:
        """Ask one bookie for one entry."""
        try:
            link.read(self._ledger_id, entry_id, self, index)
        except BookieUnavailable:
            self._finish(index, Copy(CopyState.UNREACHABLE, why=why_not))

    async def answers(self) -> list[Copy]:
        """What became of each."""
        if self._open_count:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await self._finished.wait()
            except TimeoutError:
                pass  # those without an answer get none
        silent = Copy(CopyState.UNREACHABLE, why=f"no answer within {ANSWER_TIMEOUT_S:g} s")
        return [copy or silent for copy in self._copies]

    def read_answered(
        self, bookie: int, entry_id: int, return_code: int, buffer: bytes, start: int, end: int
    ) -> None:
        """A bookie's answer (``ReadListener``)."""
        if return_code == ReturnCode.EOK:
            try:
                found = self._decode(buffer, start, end, self._ledger_id, entry_id)[3]
            except EntryDigestMismatch as error:
                self._finish(bookie, Copy(CopyState.CORRUPT, why=str(error)))
            else:
                self._finish(bookie, Copy(CopyState.OK, found))
        elif is_absence(return_code):
            self._finish(bookie, Copy(CopyState.MISSING, why="the bookie says that it has none"))
        else:
            why = f"the bookie answered {_code_words(return_code)}; its log says why"
            self._finish(bookie, Copy(CopyState.UNREADABLE, why=why))

    def read_lost(self, bookie: int, entry_id: int) -> None:
        """The connection broke before the answer (``ReadListener``)."""
        del entry_id
        self._finish(bookie, Copy(CopyState.UNREACHABLE, why="the connection broke"))

    def _finish(self, index: int, copy: Copy) -> None:
        if self._copies[index] is None:
            self._copies[index] = copy
            self._open_count -= 1
            if not self._open_count:
                self._finished.set()


def _code_words(return_code: int) -> str:
    try:
        return ReturnCode(return_code).name
    except ValueError:
        return f"code {return_code}"
