"""V3 requests that write: entries, an explicit last-add-confirmed, a force.

An entry that came over V3 is journalled as the V2 request that says the same: what is on the disk
does not depend on the version a client speaks. The answer waits for the journal as with V2.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from geminga_bookie.formats.journal_v1 import ExplicitLac
from geminga_bookie.journal.journal import Group
from geminga_bookie.sessions.context import SessionContext
from geminga_bookie.storage.write_cache import ENTRY_OVERHEAD_BYTES
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.digest import MASTER_KEY_BYTES
from geminga_protocol.bookkeeper.errors import (
    BadRequest,
    BookieFailed,
    BookieRefusal,
    WrongMasterKey,
)
from geminga_protocol.bookkeeper.v2 import Flag, encode_add_header
from geminga_protocol.bookkeeper.v3 import (
    EXPLICIT_LAC_IDS_BYTES,
    encode_frame,
    make_response,
    set_status,
)

_IDS = Struct(">qq")
# A writer sends at most 36 bytes, those with a MAC for its digest.
EXPLICIT_LAC_BYTES_MAX = 256


class V3Adds:
    """Takes what one connection writes; answers when it is durable, a journal group at a time."""

    def __init__(self, context: SessionContext, write: Callable[[list[bytes]], None]) -> None:
        self._context = context
        self._storage = context.storage
        self._journal = context.journal
        self._write = write
        # The journal's group that our latest requests are in; for when it is durable, their answers
        # and the ids of the entries among them.
        self._group: Group | None = None
        self._answers: list[pb.Response] = []
        self._ids: list[bytes] = []

    def add(self, request: pb.Request) -> None:
        """Take an entry. Raises ``BookieRefusal``.

        With DEFERRED_SYNC a bookie may answer before the entry is durable. This one does not: one
        sync makes all durable that waits, so that there is little to gain.
        """
        asked = request.addRequest
        ledger_id, entry_id, entry = asked.ledgerId, asked.entryId, asked.body
        # Every later reader, and the journal, take the ids from the entry itself.
        if entry_id < 0 or entry[: _IDS.size] != _IDS.pack(ledger_id, entry_id):
            raise BadRequest(ledger_id, entry_id)
        _require_master_key(ledger_id, asked.masterKey)
        # V2 has both as bits of its header word; V3 has a number for the one and an enum for the
        # other.
        flags = int(Flag.HIGH_PRIORITY if request.header.priority else Flag.NONE)
        if asked.HasField("flag") and asked.flag == pb.AddRequest.RECOVERY_ADD:
            flags |= Flag.RECOVERY_ADD
        context = self._context
        try:
            entries = self._storage.admit(ledger_id, asked.masterKey, flags)
        except BookieRefusal:
            context.counters.adds_refused += 1
            raise
        # From here to the waiter nothing is awaited: the entry is in the cache and in the group
        # that forms at the same moment, and no checkpoint sees one without the other.
        entries[entry_id] = entry
        frame = encode_add_header(asked.masterKey, len(entry), flags) + entry
        self._journal.append_adds(frame, 1)
        self._storage.write_cache.active_bytes += len(frame) + ENTRY_OVERHEAD_BYTES
        context.counters.add_bytes += len(frame)
        self._answer_when_durable(request)
        # The line before has made sure that the waiter of this group has this list.
        self._ids.append(entry[: _IDS.size])
        context.after_adds()

    def write_lac(self, request: pb.Request) -> None:
        """Take an explicit last-add-confirmed. Raises ``BookieRefusal``."""
        asked = request.writeLacRequest
        ledger_id, body = asked.ledgerId, asked.body
        if (
            not EXPLICIT_LAC_IDS_BYTES <= len(body) <= EXPLICIT_LAC_BYTES_MAX
            or _IDS.unpack_from(body)[0] != ledger_id
        ):
            raise BadRequest(ledger_id)
        _require_master_key(ledger_id, asked.masterKey)
        # In memory at once, so that readers may see it before it is durable. That is no harm: the
        # writer knows the entries to be confirmed already.
        self._storage.set_explicit_lac(ledger_id, asked.masterKey, body)
        # The journal keeps all of them in the order in which they came, and replay ends with the
        # last one.
        self._journal.append_mark(ExplicitLac(ledger_id, asked.masterKey, body))
        self._answer_when_durable(request)
        self._context.counters.lac_writes += 1
        # Not ``added``: the entries that this confirms were reported when they became durable.
        self._context.long_polls.confirmed(ledger_id)

    def force(self, request: pb.Request) -> pb.Response:
        """Answer that everything answered so far is durable, as it always is.

        Raises ``BookieFailed`` where the journal takes nothing any more.
        """
        if self._journal.error is not None:
            raise BookieFailed(request.forceLedgerRequest.ledgerId)
        self._context.counters.forces += 1
        return make_response(request)

    def _answer_when_durable(self, request: pb.Request) -> None:
        group = self._journal.forming
        # One waiter for each group and connection.
        if self._group is not group:
            self._group = group
            # New lists, not cleared ones: the waiter of the last group still has those.
            self._answers, self._ids = [], []
            group.waiters.append((self._group_done, (self._answers, self._ids)))
        self._answers.append(make_response(request))

    def _group_done(
        self,
        waited: tuple[list[pb.Response], list[bytes]],
        is_written: bool,  # noqa: FBT001 a Waiter
    ) -> None:
        """Answer what was in one journal group, which is durable or has failed."""
        # What was put down as success is turned into a failure where the group has failed.
        answers, ids = waited
        context = self._context
        if is_written:
            context.counters.adds += len(ids)
            if context.long_polls.waiting:
                context.long_polls.added(ids)
        else:
            context.counters.adds_failed += len(ids)
            for answer in answers:
                set_status(answer, pb.EIO)
        self._write(list(map(encode_frame, answers)))


def _require_master_key(ledger_id: int, master_key: bytes) -> None:
    if len(master_key) != MASTER_KEY_BYTES:
        raise WrongMasterKey(ledger_id)
