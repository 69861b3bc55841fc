"""What a connection asks besides V2 adds and reads.

That is V3, several entries at once, authentication, and what is not served. Made by the first such
request of a connection; brokers, which send none, pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from geminga_bookie.sessions.batch_reads import BatchReads
from geminga_bookie.sessions.context import SessionContext
from geminga_bookie.sessions.deferred_answers import AnswerQueue
from geminga_bookie.sessions.v3 import V3Requests
from geminga_protocol.bookkeeper.codes import Operation, ReturnCode
from geminga_protocol.bookkeeper.errors import UnsupportedVersion
from geminga_protocol.bookkeeper.v2 import VERSION, encode_response, is_v3
from geminga_protocol.bookkeeper.v2_rare import encode_auth_answer
from geminga_protocol.bookkeeper.v3 import AUTHENTICATION_DISABLED

# Versions of the protocol that clients spoke once; a frame of any other is garbage.
_OLD_VERSIONS = (0, 1)
# Where the ids stand in a V2 request that is refused unread: in an add, and in anything else.
_IDS = Struct(">qq")
_ADD_IDS_OFFSET = 24
_READ_IDS_OFFSET = 4


class RareRequests:
    """Takes the rare requests of one connection.

    ``write`` takes the pieces of answers that are made later. ``on_drained`` is called when few of
    these are pending. ``begin_tls`` is as in ``V3Requests``.
    """

    def __init__(
        self,
        context: SessionContext,
        *,
        write: Callable[[list[bytes]], None],
        on_drained: Callable[[], None],
        begin_tls: Callable[[], bool],
    ) -> None:
        # Answers that are made later. The session pauses it while the client does not take them.
        self.queue = queue = AnswerQueue(
            context.spawn,
            name="answers",
            queued_max=context.config.reads_queued_max,
            write=write,
            on_drained=on_drained,
        )
        # Both push their answers to one queue, which keeps the order of the requests.
        self._v3 = V3Requests(context, queue, write, begin_tls=begin_tls)
        self._batch_reads = BatchReads(context, queue, write)

    def take(self, buffer: bytes, start: int, end: int) -> bytes | None:
        """Take the request at ``buffer[start:end]``; return its answer, None where it comes later.

        The request is at least four bytes long and neither a V2 add nor a V2 read. Raises
        ``WireError`` where it is no request.
        """
        if is_v3(buffer, start, end):
            return self._v3.take(buffer[start:end])
        # The header word: version and operation are a byte each, the flags two.
        version, operation = buffer[start], buffer[start + 1]
        # What is refused below is answered at once, out of the order of requests: its ids tell the
        # client which one it was.
        if version != VERSION:
            if version not in _OLD_VERSIONS:
                raise UnsupportedVersion(version)
            return _refuse_unread(buffer, start, end, ReturnCode.EBADVERSION)
        if operation == Operation.AUTH:
            return encode_auth_answer(AUTHENTICATION_DISABLED)
        # Everything else is refused with its ids, so that the client's request fails and does not
        # hang.
        if operation != Operation.BATCH_READ:
            return _refuse_unread(buffer, start, end, ReturnCode.EBADREQ)
        self._batch_reads.take(buffer, start, end)
        return None

    def close(self) -> None:
        """Drop what is pending: the connection is gone."""
        self.queue.close()
        # After the queue, which from then on refuses what the end of a wait might push.
        self._v3.reads.close()


def _refuse_unread(buffer: bytes, start: int, end: int, code: int) -> bytes:
    """Refuse a V2 request that cannot be read: with its ids, as far as they can be guessed."""
    operation = buffer[start + 1]
    offset = _ADD_IDS_OFFSET if operation == Operation.ADD else _READ_IDS_OFFSET
    ledger_id = entry_id = -1
    if end - start >= offset + _IDS.size:
        ledger_id, entry_id = _IDS.unpack_from(buffer, start + offset)
    return encode_response(operation, code, ledger_id, entry_id)
