"""Entries on their way to the bookies of one ensemble: numbered, sent, counted, confirmed in order.

The engine under ``LedgerWriter`` and under recovery. Appending is synchronous: the bytes go into
the outboxes of the write set and leave at the end of the loop turn. Every entry is kept until it is
confirmed, so that a bookie whose connection broke, or one that replaces another
(``ensemble_change``), can be sent all that it has not answered. When an entry can never be
confirmed (fenced, refused by too many bookies that cannot be replaced, deadline passed) the
pipeline fails as a whole and reports it once; what it confirmed stays confirmed.

A bookie counts as failing when it cannot be connected to while there is something to send to it,
when it refuses an entry, when it owes answers and gives none for ``answer_timeout_s``, or when it
has not been registered for a while (``missing_bookies``).

HOT: no future, task or timer for an entry. One timer per pipeline that has something on its way.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.links import BookieLink
from geminga_ledger.connections.outbox import GATHER_CHUNKS_MAX, Outbox
from geminga_ledger.errors import (
    AppendRefused,
    AppendTimedOut,
    EntryTooLarge,
    LedgerClosed,
    LedgerError,
    TooMuchPending,
    append_error,
)
from geminga_ledger.replication.quorum import Acknowledgements, Quorum
from geminga_ledger.replication.stall_detector import Answers, StallDetector
from geminga_ledger.writing.ensemble_change import EnsembleChange
from geminga_ledger.writing.listener import NO_LISTENER, LedgerListener
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.v2 import encode_add
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

# Checks for stalled entries in the time that a bookie may take to answer: a stall is noticed at
# most a quarter of that time late.
_CHECKS_PER_TIMEOUT = 4
# What a frame holds besides the payload, its size not counted: the request's header and key, the
# entry's header.
FRAME_OVERHEAD_BYTES = len(encode_add(0, 0, 0, 0, b"", bytes(20))) - 4


# What a pipeline is at each moment; there is no way back:
#
#     takes entries --close--> takes no more, waits for those on their way --detach--> over
#           |                                   |
#           +-------------- fail ---------------+-----> over, and ``failure`` says why
#
# ``close`` (of ``LedgerWriter``) and ``fail`` set ``_refusal``, ``detach`` sets ``is_over``. A
# recovery detaches its pipeline without closing it.
class AddPipeline:
    """Appends entries ``last_confirmed + 1``, … to one ensemble, whose bookies ``change`` replaces.

    ``flags`` go with every add. A bookie is named by its slot: its index in the ensemble.

    ``last_pushed`` is the last entry appended, ``length_bytes`` the payloads of the ledger up to
    it, ``pending_bytes`` those that are not confirmed. ``failure`` says why the pipeline failed, if
    it did; ``is_over`` that nothing is sent to bookies any more: detached, closed or failed.
    """

    # With more than 30 attributes and no slots, CPython looks each up in a dictionary: an entry
    # alone then takes 130 ns more than 2.1 us to append and 100 ns more than 1.9 us to confirm.
    # What is empty for most pipelines is made with its first element, or shared (a frozenset):
    # there may be very many ledgers that are open and not written to.
    __slots__ = (
        "_acks",
        "_answers",
        "_change",
        "_clock",
        "_config",
        "_drained",
        "_ensemble_size",
        "_flags",
        "_links",
        "_listener",
        "_master_key",
        "_outboxes",
        "_overloaded",
        "_payload_bytes_max",
        "_pending",
        "_pending_bytes_max",
        "_refusal",
        "_refusals",
        "_retired",
        "_stalls",
        "_timer",
        "_unreachable_since",
        "failing",
        "failure",
        "is_over",
        "last_confirmed",
        "last_pushed",
        "ledger_id",
        "length_bytes",
        "pending_bytes",
        "quorum",
    )

    def __init__(
        self,
        ledger_id: int,
        quorum: Quorum,
        links: Sequence[BookieLink],
        *,
        master_key: bytes,
        listener: LedgerListener,
        change: EnsembleChange,
        clock: Clock,
        config: LedgerConfig,
        flags: int = 0,
        last_confirmed: int = -1,
    ) -> None:
        assert len(links) == quorum.ensemble_size
        self.ledger_id = ledger_id
        self.quorum = quorum
        self.is_over = False
        self.failure: LedgerError | None = None
        self.last_pushed = last_confirmed
        self.last_confirmed = last_confirmed
        self.length_bytes = 0
        self.pending_bytes = 0
        # The slots whose bookies should be replaced.
        self.failing: frozenset[int] = frozenset()
        self._links = list(links)
        self._listener = listener
        self._change = change
        self._clock = clock
        self._config = config
        self._pending_bytes_max = config.pending_bytes_max
        self._payload_bytes_max = config.frame_bytes_max - FRAME_OVERHEAD_BYTES
        self._master_key = master_key
        self._flags = flags
        # Why ``append`` raises; None while it takes entries.
        self._refusal: LedgerError | None = None
        self._acks = Acknowledgements(quorum, last_confirmed)
        # (everything before the payload, payload) of the entries from last_confirmed + 1 on, up to
        # last_pushed and without a gap: an entry's place gives its id.
        self._pending: deque[tuple[bytes, bytes]] | None = None
        self._ensemble_size = quorum.ensemble_size
        self._outboxes = self._route()
        self._timer: asyncio.TimerHandle | None = None
        # By slot: why its bookie refused first, and ``last_pushed`` when its bookie was first found
        # unreachable.
        self._refusals: dict[int, AppendRefused] = {}
        self._unreachable_since: dict[int, int] = {}
        # By slot: the entries that its bookie answered last, another object for each answer
        # (``StallDetector`` compares them). One more than there are slots: ``release`` records an
        # empty answer there.
        self._answers: list[Answers] = [(last_confirmed,)] * (quorum.ensemble_size + 1)
        self._stalls = StallDetector()
        # Slots whose bookies leave in the change under way; whose bookies are overloaded.
        self._retired: frozenset[int] = frozenset()
        self._overloaded: frozenset[int] = frozenset()
        self._drained: asyncio.Future[None] | None = None
        # Last: a link without a connection begins to connect, and will call this object.
        for bookie, link in enumerate(links):
            link.attach(ledger_id, self, bookie)

    @property
    def ensemble(self) -> tuple[str, ...]:
        """The bookies as they are now, by slot."""
        return tuple(link.bookie_id for link in self._links)

    def append(self, payload: bytes) -> int:
        """Send one entry on its way; returns its id. Raises as ``append_all`` does."""
        self.append_all((payload,))
        return self.last_pushed

    def append_all(self, payloads: Sequence[bytes]) -> None:
        """Send entries on their way, from id ``last_pushed + 1`` on: all of them or, raising, none.

        Raises ``EntryTooLarge``, ``TooMuchPending``, or why the pipeline takes no more:
        ``LedgerClosed``, ``LedgerFenced``, ….
        """
        # Everything that can refuse the entries comes before the first change of state.
        if self._refusal is not None:
            raise self._refusal
        largest = max(map(len, payloads))
        if largest > self._payload_bytes_max:
            raise EntryTooLarge(largest, self._payload_bytes_max)
        total = sum(map(len, payloads))
        # A batch larger than the bound is taken where nothing else is pending: else it never would.
        if self.pending_bytes + total > self._pending_bytes_max and self._pending:
            raise TooMuchPending(self.ledger_id, self.pending_bytes, self._pending_bytes_max)
        ledger_id, confirmed = self.ledger_id, self.last_confirmed
        master_key, flags = self._master_key, self._flags
        outboxes, ensemble_size = self._outboxes, self._ensemble_size
        entry_id, length_bytes = self.last_pushed, self.length_bytes
        pending = self._pending
        if pending is None:
            pending = self._pending = deque()
        for payload in payloads:
            entry_id += 1
            length_bytes += len(payload)
            # Each entry carries what was confirmed when it was sent: readers and recovery learn it
            # from there.
            entry = (
                encode_add(
                    ledger_id, entry_id, confirmed, length_bytes, payload, master_key, flags
                ),
                payload,
            )
            pending.append(entry)
            # ``flush`` may end a connection. The next one is made by a task, so that
            # ``bookie_connected`` finds all entries of this call counted in ``last_pushed``.
            for outbox in outboxes[entry_id % ensemble_size]:
                chunks = outbox.chunks
                if not chunks:
                    outbox.wake_for_entries()
                chunks += entry
                if len(chunks) > GATHER_CHUNKS_MAX:
                    outbox.flush()
        self.pending_bytes += length_bytes - self.length_bytes
        self.last_pushed = entry_id
        self.length_bytes = length_bytes
        if self._timer is None:
            self._check_later()

    async def drained(self) -> None:
        """Return when nothing is on its way any more: all confirmed, or the pipeline failed."""
        if self._pending:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            # Shielded: another waiter of the same future must not be cancelled with us.
            await asyncio.shield(self._drained)

    def detach(self) -> None:
        """Stop: no more answers are heard, nothing more is sent or reported."""
        self.is_over = True
        self._listener = NO_LISTENER
        self._change.stop()
        for link in self._links:
            link.detach(self.ledger_id, self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def fail(self, error: LedgerError) -> None:
        """Give up: nothing more is taken or confirmed. Reported to the listener the first time."""
        if self.failure is not None:
            return
        self.failure = error
        self._refusal = error
        listener = self._listener
        self.detach()
        # What is not confirmed does not count as part of the ledger.
        self.length_bytes -= self.pending_bytes
        self.pending_bytes = 0
        self._pending = None
        log.warning("ledger writer failed", extra={"ledger": self.ledger_id, "error": str(error)})
        self._wake_drained()
        # Last: the listener may use the pipeline, and finds it failed as a whole.
        listener.writer_failed(error)

    # --- reports of the connections (``AddListener``) -----------------------------------------

    def adds_stored(self, bookie: int, entry_ids: list[int]) -> None:
        """A bookie has stored entries; HOT."""
        self._answers[bookie] = entry_ids
        confirmed = self._acks.record(bookie, entry_ids, self.last_pushed)
        count = confirmed - self.last_confirmed
        if not count:
            return
        self.last_confirmed = confirmed
        pending = self._pending
        assert pending is not None, "what is confirmed was pending"
        if count == len(pending):
            pending.clear()
            self.pending_bytes = 0
        else:
            take = pending.popleft
            for _ in range(count):
                self.pending_bytes -= len(take()[1])
        # After all counts have moved on: the listener may append, close or detach.
        self._listener.entries_confirmed(confirmed)
        # Asked again: the listener may have appended, or detached the pipeline.
        if not pending and self._drained is not None:
            self._wake_drained()

    def add_refused(self, bookie: int, entry_id: int, return_code: int) -> None:
        """A bookie will not store an entry."""
        link = self._links[bookie]
        error = append_error(return_code, self.ledger_id, entry_id, link.bookie_id)
        # No bookie takes an entry of this writer any more.
        if not isinstance(error, AppendRefused):
            self.fail(error)
            return
        if return_code == ReturnCode.ETOOMANYREQUESTS:
            # The bookie has not begun to store the entry; the next check sends it again.
            self._overloaded |= {bookie}
            return
        self._acks.refuse(bookie, entry_id)
        # A bookie that refuses one entry mostly refuses all that are on their way: the first is
        # logged and counted.
        if bookie in self._refusals:
            return
        log.warning(
            "bookie refused an entry",
            extra={"bookie": link.bookie_id, "error": str(error.__cause__)},
        )
        link.note_failure()
        self._refusals[bookie] = error
        self._note_failing(bookie)

    def bookie_unreachable(self, bookie: int) -> None:
        """A bookie cannot be connected to: it fails once it is needed."""
        pushed = self._unreachable_since.setdefault(bookie, self.last_pushed)
        # Needed: an entry waits, or one has been added since. Where Qa < Qw that one may be
        # confirmed already, and is a copy short.
        if self._pending or self.last_pushed > pushed:
            self._note_failing(bookie)

    def bookie_absent(self, bookie: int) -> None:
        """A bookie has not been registered for a while: it fails now, needed or not.

        Where no other bookie can replace it, it is no longer failing when it comes back.
        """
        was_failing = bookie in self.failing
        self._note_failing(bookie)
        if not was_failing and self._change.task is None:
            self.failing -= {bookie}

    def bookie_connected(self, bookie: int) -> None:
        """A bookie can be reached (again): send what it has not stored."""
        self._unreachable_since.pop(bookie, None)
        self._refusals.pop(bookie, None)
        self.failing -= {bookie}
        acks = self._acks
        acks.forgive(bookie)
        outbox = self._links[bookie].outbox
        unstored = set(acks.unstored(bookie, self.last_pushed))
        # What was lost on the way before counts as answered, unless it is sent again now.
        self._answers[bookie] = (self.last_confirmed if unstored else self.last_pushed,)
        if not unstored:
            return
        if not outbox.chunks:
            outbox.wake()
        # Confirmed entries are not kept: where Qa < Qw, one that was lost on its way to this bookie
        # stays a copy short.
        for entry_id, entry in enumerate(self._pending or (), self.last_confirmed + 1):
            if entry_id in unstored:
                outbox.chunks += entry
        log.debug(
            "entries sent again",
            extra={
                "ledger": self.ledger_id,
                "bookie": self._links[bookie].bookie_id,
                "entries": len(unstored),
            },
        )

    def link_closed(self) -> None:
        """The owner of all connections is closing."""
        self.fail(LedgerClosed(self.ledger_id))

    # --- bookies that are replaced (called by ``EnsembleChange``) -----------------------------

    def retire(self, slots: Mapping[int, BookieLink]) -> None:
        """Count no more what these slots' bookies say, and confirm nothing for the moment."""
        # Until ``admit``, new entries still go to the outboxes of the bookies that leave, whose
        # answers do not reach this pipeline; the newcomers are sent all that is not confirmed.
        self._acks.hold()
        for bookie in slots:
            self._retired |= {bookie}
            self._links[bookie].detach(self.ledger_id, self)
            self._acks.forget(bookie)
            self.failing -= {bookie}
            self._refusals.pop(bookie, None)
            self._overloaded -= {bookie}

    def release(self) -> None:
        """Confirm again what enough bookies have."""
        if self.is_over:
            return
        self._acks.release()
        # Entries that got enough acknowledgements meanwhile are confirmed by the next record: this
        # one, which has no entries, of a slot beyond the ensemble.
        self.adds_stored(self.quorum.ensemble_size, [])

    def admit(self, newcomers: Mapping[int, BookieLink]) -> None:
        """These are the slots' bookies from now on: send them all that is not confirmed."""
        for bookie, link in newcomers.items():
            self._retired -= {bookie}
            self._unreachable_since.pop(bookie, None)
            self._links[bookie] = link
            link.attach(self.ledger_id, self, bookie)
        self._outboxes = self._route()
        for bookie, link in newcomers.items():
            # Where its connection broke meanwhile, the next one calls ``bookie_connected``.
            if link.is_connected:
                self.bookie_connected(bookie)
        # Last: what the bookies that stay have stored meanwhile is confirmed now, leaves
        # ``_pending``, and could not be sent to the newcomers any more.
        self.release()

    def no_replacement(self) -> None:
        """No other bookie is available: fail where these can never confirm all entries."""
        if self._refusals and self._acks.hopeless() is not None:
            self.fail(next(reversed(self._refusals.values())))

    def _note_failing(self, bookie: int) -> None:
        if bookie not in self._retired:
            self.failing |= {bookie}
            self._change.replace_failing(self)

    def _route(self) -> list[tuple[Outbox, ...]]:
        """The outboxes of each write set; an entry's is number ``entry_id % ensemble_size``."""
        return [
            tuple(self._links[bookie].outbox for bookie in write_set)
            for write_set in self.quorum.write_sets
        ]

    # --- entries that wait too long -----------------------------------------------------------

    def _check_later(self) -> None:
        delay_s = self._config.answer_timeout_s / _CHECKS_PER_TIMEOUT
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._check_progress)

    def _check_progress(self) -> None:
        """Find bookies that do not answer; fail where an entry has waited for the deadline."""
        self._timer = None
        now_s = self._clock.monotonic()
        timeout_s = self._config.answer_timeout_s
        # An answer is due to the last entry that was sent to a bookie.
        owing = [
            bookie
            for bookie, link in enumerate(self._links)
            if bookie not in self._retired
            and link.is_connected
            and self.quorum.newest_of(bookie, self.last_pushed)
            > max(self._answers[bookie], default=-1)
        ]
        # Stage 1: which bookies have owed an answer for too long. Every bookie is looked at, also
        # one that owes nothing: its time begins anew then.
        stalled = [
            bookie
            for bookie in range(self._ensemble_size)
            if self._stalls.silent_s(bookie, self._answers[bookie], now_s, owes=bookie in owing)
            >= timeout_s
        ]
        stalled += self._lagging(now_s)
        if self.is_over:
            return
        # Stage 2: the next check, while there is something to wait for. The next append starts the
        # checks again.
        if self._pending or owing:
            self._check_later()
        # Stage 3: send again, replace, reconnect. A step may end the pipeline, for which those
        # after it then do nothing. ``bookie_connected`` sends an overloaded bookie what it refused.
        overloaded, self._overloaded = sorted(self._overloaded), frozenset()
        for bookie in overloaded:
            self.bookie_connected(bookie)
        for bookie in dict.fromkeys(stalled):
            link = self._links[bookie]
            if link.is_connected:
                link.note_failure()
                self._note_failing(bookie)
                # It may be the connection that hangs, not the bookie: make another one.
                link.suspect(timeout_s)
        if self.failing:
            self._change.replace_failing(self)

    def _lagging(self, now_s: float) -> list[int]:
        """Bookies without the first unconfirmed entry, when that has waited for too long.

        Fails the pipeline where it has waited for the whole deadline.
        """
        # Beside the answers of single bookies: one may answer other entries and never this one.
        oldest = self.last_confirmed + 1 if self._pending else -1
        stalled_s = self._stalls.waited_s(oldest, now_s)
        if not self._pending or stalled_s < self._config.answer_timeout_s:
            return []
        if stalled_s >= self._config.append_deadline_s:
            self.fail(AppendTimedOut(self.ledger_id, oldest, stalled_s))
            return []
        return [each for each in self._acks.lagging(oldest) if each not in self._retired]

    def _wake_drained(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)
