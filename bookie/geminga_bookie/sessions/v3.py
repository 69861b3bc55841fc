"""V3 requests of one connection, given to their handlers by their operation.

``v3_reads`` has those that read, ``v3_adds`` those that write. AUTH is accepted, as by an upstream
bookie without authentication; START_TLS is, where the bookie has a certificate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from geminga_bookie.sessions.context import SessionContext
from geminga_bookie.sessions.deferred_answers import AnswerQueue
from geminga_bookie.sessions.v3_adds import V3Adds
from geminga_bookie.sessions.v3_reads import V3Reads
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.errors import (
    BadRequest,
    BookieFailed,
    BookieRefusal,
    VersionRefused,
)
from geminga_protocol.bookkeeper.v3 import (
    AUTHENTICATION_DISABLED,
    encode_frame,
    has_body,
    ledger_of,
    make_bare_response,
    make_response,
    parse_request,
    status_of,
)

log = logging.getLogger(__name__)

# Takes a request; returns its answer, or None where it comes later. Raises ``BookieRefusal``.
Handler = Callable[[pb.Request], pb.Response | None]

_TOTAL = pb.GetBookieInfoRequest.TOTAL_DISK_CAPACITY
_FREE = pb.GetBookieInfoRequest.FREE_DISK_SPACE


class V3Requests:
    """Takes the V3 requests of one connection."""

    def __init__(
        self,
        context: SessionContext,
        queue: AnswerQueue,
        write: Callable[[list[bytes]], None],
        *,
        begin_tls: Callable[[], bool],
    ) -> None:
        """``begin_tls`` secures the connection after the next answer, and says whether it can."""
        self._context = context
        self._begin_tls = begin_tls
        # Both sides share the queue only for reads: an add is answered by the journal, out of their
        # order. V3 answers carry a transaction id for that.
        self.reads = reads = V3Reads(context, queue)
        adds = V3Adds(context, write)
        # Not here: RANGE_READ_ENTRY and RANGE_ADD_ENTRY, which upstream does not support either,
        # and BATCH_READ_ENTRY, which is served in V2 only.
        self._handlers: dict[int, Handler] = {
            pb.ADD_ENTRY: adds.add,
            pb.WRITE_LAC: adds.write_lac,
            pb.FORCE_LEDGER: adds.force,
            pb.READ_ENTRY: reads.read,
            pb.READ_LAC: reads.read_lac,
            pb.GET_LIST_OF_ENTRIES_OF_LEDGER: reads.list_entries,
            pb.GET_BOOKIE_INFO: self._bookie_info,
        }

    def take(self, frame: bytes) -> bytes | None:
        """Take the request ``frame``; return its answer with its size, None where it comes later.

        Raises ``WireError`` where it is no V3 request.
        """
        # Garbage is raised before anything is counted; everything from here on gets an answer.
        request = parse_request(frame)
        self._context.counters.v3_requests += 1
        operation = request.header.operation
        response: pb.Response | None
        # The first two come before a client knows what the bookie can, and have no ledger.
        if operation == pb.AUTH:
            response = make_bare_response(request, pb.EOK)
            response.authResponse.CopyFrom(AUTHENTICATION_DISABLED)
        elif operation == pb.START_TLS:
            # The answer goes out in plain, and the client begins its handshake behind it.
            if self._begin_tls():
                response = make_bare_response(request, pb.EOK)
                response.startTLSResponse.SetInParent()
            else:
                response = make_bare_response(request, pb.EBADREQ)
        else:
            handler = self._handlers.get(operation)
            # Without the body of its operation there is no ledger id that an answer could name.
            if handler is None or not has_body(request):
                response = make_bare_response(request, pb.EBADREQ)
            else:
                try:
                    # No handler has to expect these.
                    ledger_id = ledger_of(request)
                    # First the version, as in upstream's processors: EBADVERSION tells a client
                    # more than EBADREQ.
                    if request.header.version != pb.VERSION_THREE:
                        raise VersionRefused(-1 if ledger_id is None else ledger_id)
                    if ledger_id is not None and ledger_id < 0:
                        raise BadRequest(ledger_id)
                    response = handler(request)
                except BookieRefusal as refusal:
                    response = make_response(request, status_of(refusal.return_code))
        return None if response is None else encode_frame(response)

    def _bookie_info(self, request: pb.Request) -> pb.Response:
        """Answer how much room the ledger disks have."""
        try:
            space = self._context.disk_space()
        except OSError as error:
            log.warning("disks cannot be measured", extra={"error": str(error)})
            raise BookieFailed(-1) from error
        # Only what was asked for is filled in, as upstream.
        requested = request.getBookieInfoRequest.requested
        response = make_response(request)
        if requested & _TOTAL:
            response.getBookieInfoResponse.totalDiskCapacity = space.total_bytes
        if requested & _FREE:
            response.getBookieInfoResponse.freeDiskSpace = space.free_bytes
        return response
