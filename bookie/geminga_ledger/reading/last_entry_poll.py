"""Asks the bookies of a ledger's last ensemble for their newest entry, fencing them if wanted.

Opening an open ledger learns from it how far the ledger is confirmed; recovery stops the writer
with it. ``recovery_rules.LastEntryVotes`` says what the answers mean together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from geminga_ledger.connections.links import BookieLink
from geminga_ledger.entries.digests import Decode
from geminga_ledger.errors import BookieUnavailable, RecoveryUndecided, WrongPassword
from geminga_ledger.replication.quorum import Quorum
from geminga_ledger.replication.recovery_rules import LastEntryVotes, is_absence
from geminga_protocol.bookkeeper.codes import Flag, ReturnCode
from geminga_protocol.bookkeeper.digest import ANY_ENTRY, decode_entry
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch, refusal_of
from geminga_protocol.bookkeeper.v2 import LAST_ENTRY

log = logging.getLogger(__name__)


# Without a ``repr``: it would show the password of the ledger.
@dataclass(eq=False, repr=False, slots=True)
class LastEntryPoll:
    """One request to each bookie of one ensemble. ``master_key`` is given to fence, and only then.

    Answers that come after ``run`` are ignored.
    """

    ledger_id: int
    quorum: Quorum
    # The links to the ensemble's bookies, by slot.
    links: Sequence[BookieLink]
    answer_timeout_s: float = field(kw_only=True)
    master_key: bytes | None = field(default=None, kw_only=True)
    decode: Decode = field(default=decode_entry, kw_only=True)
    # The answers so far; enough to judge only when ``run`` has returned.
    votes: LastEntryVotes = field(init=False)
    # The slots of bookies that may still answer.
    _awaited: set[int] = field(init=False, default_factory=set[int])
    _is_password_wrong: bool = field(init=False, default=False)
    _finished: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    async def run(self) -> LastEntryVotes:
        """Ask all bookies, return when enough have answered.

        Raises ``RecoveryUndecided`` when too few do, ``WrongPassword``.
        """
        self.votes = LastEntryVotes(self.quorum)
        self._awaited.update(range(len(self.links)))
        try:
            # The tasks end when their requests are sent; the answers come to ``read_answered``,
            # which sets ``_finished``.
            async with asyncio.timeout(self.answer_timeout_s), asyncio.TaskGroup() as group:
                asking = [
                    group.create_task(self._ask(bookie), name=f"ask {link.bookie_id}")
                    for bookie, link in enumerate(self.links)
                ]
                await self._finished.wait()
                # These still wait for a connection.
                for task in asking:
                    task.cancel()
        except TimeoutError:
            # These were asked or could not be asked in time. ``suspect`` spares a young connection
            # and a link without one.
            for bookie in sorted(self._awaited):
                self.links[bookie].suspect(self.answer_timeout_s)
        if self._is_password_wrong:
            raise WrongPassword(self.ledger_id)
        if not self.votes.is_decided:
            unheard = (
                link.bookie_id
                for bookie, link in enumerate(self.links)
                if bookie not in self.votes.heard
            )
            raise RecoveryUndecided(
                self.ledger_id, f"no answer that counts from {', '.join(unheard)}"
            )
        return self.votes

    async def _ask(self, bookie: int) -> None:
        link = self.links[bookie]
        flags = Flag.NONE if self.master_key is None else Flag.FENCING
        try:
            # The only wait in here; what follows sends the request in the same turn.
            await link.connected()
            link.read(
                self.ledger_id,
                LAST_ENTRY,
                self,
                bookie,
                flags=flags,
                master_key=self.master_key,
            )
        except BookieUnavailable as error:
            log.info("bookie not asked", extra={"ledger": self.ledger_id, "error": str(error)})
            self._await_no_more(bookie)

    def read_answered(
        self, bookie: int, entry_id: int, return_code: int, buffer: bytes, start: int, end: int
    ) -> None:
        """A bookie's answer (``ReadListener``)."""
        # ``run`` may have returned: the votes are with the caller, and stay as they were judged.
        if self._finished.is_set():
            return
        if return_code == ReturnCode.EOK:
            try:
                _, last_confirmed, length, _ = self.decode(
                    buffer, start, end, self.ledger_id, ANY_ENTRY
                )
            except EntryDigestMismatch as error:
                # The bookie is fenced all the same, and recovery reads the tail from what other
                # bookies answer: so this counts as an answer, with nothing in it.
                log.warning(
                    "damaged last entry",
                    extra={"bookie": self.links[bookie].bookie_id, "error": str(error)},
                )
                self.votes.heard.add(bookie)
            else:
                self.votes.found(bookie, last_confirmed, length)
        elif is_absence(return_code):
            self.votes.heard.add(bookie)
        elif return_code == ReturnCode.EUA:
            # All bookies have the same password: no need to wait for another.
            self._is_password_wrong = True
            self._finished.set()
        else:
            log.warning(
                "bookie refused to tell its last entry",
                extra={
                    "bookie": self.links[bookie].bookie_id,
                    "error": str(refusal_of(return_code, self.ledger_id, entry_id)),
                },
            )
        self._await_no_more(bookie)

    def read_lost(self, bookie: int, entry_id: int) -> None:
        """The connection broke before the answer (``ReadListener``)."""
        del entry_id
        self._await_no_more(bookie)

    def _await_no_more(self, bookie: int) -> None:
        # Enough have answered, or no further answer can come.
        self._awaited.discard(bookie)
        if self.votes.is_decided or not self._awaited:
            self._finished.set()
