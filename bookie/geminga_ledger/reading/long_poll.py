"""Waits at the bookies of an open ledger until more of it is confirmed: BookKeeper's long poll.

A bookie answers when an entry, or the writer's explicit LAC, shows that more is confirmed. One that
does not answer for a while may hang, or may not be written to any more: then another is asked as
well. One that refuses, or cannot be reached, is replaced by the next at once. The first answer with
news is the result. Facts: ``ReadLastConfirmedAndEntryOp`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.v3_link import V3Link
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.replication.quorum import Quorum
from geminga_ledger.replication.recovery_rules import is_absence
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.errors import refusal_of
from geminga_protocol.bookkeeper.v3_requests import long_poll_request, return_code_of
from geminga_protocol.records.ledgers.ledger_metadata import NO_ENTRY

log = logging.getLogger(__name__)

# Each further bookie is asked after twice the time of the one before.
_SPREAD_GROWTH = 2
_MS_PER_S = 1000


class News(NamedTuple):
    """What a bookie answered: how far the ledger is confirmed (-1: not known) and, where it has it,
    the next entry that the reader wants: whole, and not checked yet."""

    last_confirmed: int = NO_ENTRY
    entry: bytes | None = None


class LongPoll:
    """One poll of one ensemble: is more than ``after`` confirmed?

    ``links`` are the ensemble's bookies, by slot; ``turn`` says how often the same was asked in
    vain before, and makes it begin with another of them. It ends after ``timeout_s`` seconds, and
    ``answer_timeout_s`` later where bookies hang.
    """

    def __init__(
        self,
        ledger_id: int,
        quorum: Quorum,
        links: Sequence[V3Link],
        *,
        after: int,
        timeout_s: float,
        config: LedgerConfig,
        turn: int = 0,
    ) -> None:
        self._ledger_id = ledger_id
        self._after = after
        self._config = config
        self._over_at_s = asyncio.get_running_loop().time() + timeout_s
        # Within a short wait a second bookie is asked as well.
        self._spread_s = min(config.long_poll_spread_s, timeout_s / _SPREAD_GROWTH)
        by_use = deque(links[slot] for slot in quorum.telling(after))
        # Each turn begins with the next bookie.
        by_use.rotate(-turn)
        # Still to be asked, the most promising first (the sort is stable).
        self._unasked = deque(sorted(by_use, key=lambda link: link.is_doubtful))
        # In the order of asking: a set's order would differ from run to run of a simulation.
        self._asking: dict[asyncio.Task[pb.Response], V3Link] = {}
        # The best answer so far.
        self._news = News()

    async def run(self) -> News:
        """The first news of more than ``after``; of no more than that where the time is over or no
        bookie is left to be asked."""
        try:
            self._ask_next()
            while self._asking and self._news.last_confirmed <= self._after:
                # Without a bookie left to ask there is nothing to wake for but answers, which have
                # a deadline each.
                timeout_s = self._spread_s if self._unasked else None
                done, _ = await asyncio.wait(
                    self._asking, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    self._spread_s = min(
                        self._spread_s * _SPREAD_GROWTH, self._config.long_poll_spread_limit_s
                    )
                    self._ask_next()
                # ``_ask_next`` adds to the dictionary meanwhile.
                for task in [each for each in self._asking if each in done]:
                    self._take_answer(self._asking.pop(task), task)
                # A bookie that answered that nothing more is confirmed, its wait being over.
                if not self._asking:
                    self._ask_next()
        finally:
            for task in self._asking:
                task.cancel()
            await asyncio.gather(*self._asking, return_exceptions=True)
        return self._news

    def _ask_next(self) -> None:
        left_s = self._over_at_s - asyncio.get_running_loop().time()
        if not self._unasked or left_s <= 0:
            return
        link = self._unasked.popleft()
        # The bookie answers when the time is over; where it does not, it hangs.
        request = long_poll_request(self._ledger_id, self._after, int(left_s * _MS_PER_S))
        answer = link.ask(request, timeout_s=left_s + self._config.answer_timeout_s)
        task = asyncio.get_running_loop().create_task(answer, name=f"poll {link.bookie_id}")
        self._asking[task] = link

    def _take_answer(self, link: V3Link, task: asyncio.Task[pb.Response]) -> None:
        try:
            response = task.result()
        except BookieUnavailable as error:
            log.info("bookie cannot tell", extra={"ledger": self._ledger_id, "error": str(error)})
            self._ask_next()
            return
        code = return_code_of(response.status)
        if code == ReturnCode.EOK:
            told = response.readResponse
            # Several bookies may answer in one turn: the highest counts.
            if told.HasField("maxLAC") and told.maxLAC > self._news.last_confirmed:
                # An entry that is not confirmed, or not the next one, is of no use to the reader.
                is_next = told.HasField("body") and told.entryId == self._after + 1 <= told.maxLAC
                self._news = News(told.maxLAC, told.body if is_next else None)
            return
        # A bookie without any entry of the ledger cannot wait for the next: no fault of its own.
        if not is_absence(code):
            refusal = refusal_of(code, self._ledger_id, self._after + 1)
            log.warning(
                "bookie refused to tell what is confirmed",
                extra={"bookie": link.bookie_id, "error": str(refusal)},
            )
            link.note_failure()
        self._ask_next()
