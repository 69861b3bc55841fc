"""The endpoints below ``/api/v1/ledger``: list, metadata, read, delete.

Facts: ``ListLedgerService``, ``GetLedgerMetaService``, ``ReadLedgerEntryService`` and
``DeleteLedgerService`` of Apache BookKeeper, their pages included.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from http import HTTPStatus

from geminga_autorecovery.zookeeper.ledger_list import ledger_directories, ledgers_in
from geminga_bookie.admin.access import AdminAccess
from geminga_bookie.admin.documents.ledger_json import metadata_json
from geminga_bookie.admin.documents.messages import (
    JSON_TYPE,
    Answer,
    Refused,
    Request,
    json_answer,
    json_object,
)
from geminga_ledger import LedgerReader
from geminga_protocol.errors import WireError
from geminga_protocol.records.ledgers.ledger_metadata import (
    LEDGER_ID_MAX,
    LedgerMetadata,
    ledger_path,
)
from geminga_runtime.coordination import Coordination, NodeMissing

# Ledgers with their metadata in a page, and entries in a page; upstream's.
LEDGERS_PER_PAGE = 100
ENTRIES_PER_PAGE = 1000
METADATA_READS_MAX = 64
# Entries read, and held in memory, at once.
READ_BYTES_MAX = 1024 * 1024
_TO_THE_END = -1


async def list_ledgers(access: AdminAccess, request: Request) -> Answer:
    """List every ledger of the cluster; with ``print_metadata=true``, the record of each.

    Then ``page=N`` selects about a hundred, and ``decode_meta=true`` decodes the records.
    """
    coordination = access.coordination
    # A generator, like all that follows: of a cluster with millions of ledgers, no more than one
    # directory's ids are in memory.
    ids = all_ledgers(coordination)
    if not request.is_set("print_metadata"):
        bare = ((str(ledger_id), None) async for ledger_id in ids)
        return Answer(HTTPStatus.OK, JSON_TYPE, json_object(bare))
    wanted = _page(ids, request.integer("page", -1))
    members = _with_metadata(coordination, wanted, is_decoded=request.is_set("decode_meta"))
    return Answer(HTTPStatus.OK, JSON_TYPE, json_object(members))


async def ledger_metadata(access: AdminAccess, request: Request) -> Answer:
    """Show one ledger's metadata. Raises ``NoSuchLedger``, ``UnsupportedLedger``."""
    ledger_id = _ledger_id(request)
    stored = await access.store.read(ledger_id)
    shown = metadata_json(ledger_id, stored.metadata, created_ms=stored.created_ms)
    return json_answer({str(ledger_id): shown})


async def read_ledger(access: AdminAccess, request: Request) -> Answer:
    """Show entries as ASCII text; of an open ledger, those that are confirmed so far."""
    ledger_id = _ledger_id(request)
    first = request.integer("start_entry_id", 0)
    last = request.integer("end_entry_id", _TO_THE_END)
    if first < 0 or last < _TO_THE_END:
        raise Refused(HTTPStatus.BAD_REQUEST, "entries begin with 0")
    page = request.integer("page", -1)
    if page > 0:
        # Pages count entries from 0, whatever ``start_entry_id`` says: both bounds hold.
        page_first = (page - 1) * ENTRIES_PER_PAGE
        page_last = page_first + ENTRIES_PER_PAGE - 1
        first = max(first, page_first)
        last = page_last if last == _TO_THE_END else min(last, page_last)
    if last != _TO_THE_END and first > last:
        raise Refused(
            HTTPStatus.INTERNAL_SERVER_ERROR,  # upstream's
            f"parameter for start_entry_id: {first} and end_entry_id: {last} conflict with "
            f"page={page}",
        )
    # Without recovery: reading must not fence a ledger that a broker writes to.
    reader = await (await access.ledgers()).open(ledger_id, recover=False)
    end = reader.last_confirmed if last == _TO_THE_END else min(last, reader.last_confirmed)
    return Answer(HTTPStatus.OK, JSON_TYPE, json_object(_entries(reader, first, end, page)))


async def delete_ledger(access: AdminAccess, request: Request) -> Answer:
    """Delete a ledger for good; a missing one is no error, as upstream."""
    ledger_id = _ledger_id(request)
    await access.store.delete(ledger_id)
    return json_answer(f"Deleted ledger: {ledger_id}")


async def all_ledgers(coordination: Coordination) -> AsyncIterator[int]:
    """The ids of all ledgers, ascending, a directory at a time. Raises ``CoordinationError``."""
    directories = await ledger_directories(coordination)
    # Long paths hold the ids beyond those of the short ones.
    for directory in sorted(directories, key=lambda path: (len(path), path)):
        for ledger_id in await ledgers_in(coordination, directory):
            yield ledger_id


def _ledger_id(request: Request) -> int:
    ledger_id = request.integer("ledger_id")
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise Refused(HTTPStatus.BAD_REQUEST, f"ledger_id={ledger_id} is no id: it is below 0")
    return ledger_id


async def _page(ids: AsyncIterator[int], page: int) -> AsyncIterator[int]:
    """Yield the ids of a page, or all where there is none; page 1 has one less, as upstream."""
    if page <= 0:
        async for ledger_id in ids:
            yield ledger_id
        return
    number, start = 0, (page - 1) * LEDGERS_PER_PAGE
    async for ledger_id in ids:
        number += 1
        if number >= start + LEDGERS_PER_PAGE:
            return
        if number >= start:
            yield ledger_id


async def _with_metadata(
    coordination: Coordination, ids: AsyncIterator[int], *, is_decoded: bool
) -> AsyncIterator[tuple[str, object]]:
    # A batch at a time: one read after the other would take minutes for a large cluster.
    some: list[int] = []
    async for ledger_id in ids:
        some.append(ledger_id)
        if len(some) == METADATA_READS_MAX:
            for member in await _metadata_of(coordination, some, is_decoded=is_decoded):
                yield member
            some = []
    for member in await _metadata_of(coordination, some, is_decoded=is_decoded):
        yield member


async def _metadata_of(
    coordination: Coordination, ledger_ids: list[int], *, is_decoded: bool
) -> list[tuple[str, object]]:
    """Read the records of ledgers at once; those that were deleted meanwhile are left out."""
    values = await asyncio.gather(
        *(coordination.get(ledger_path(each)) for each in ledger_ids), return_exceptions=True
    )
    members: list[tuple[str, object]] = []
    for ledger_id, found in zip(ledger_ids, values, strict=True):
        if isinstance(found, NodeMissing):
            continue  # deleted after it was listed
        if isinstance(found, BaseException):
            raise found
        value, stat = found
        shown: object = value.decode(errors="replace")
        if is_decoded:
            # A record that cannot be decoded is shown as it is.
            with suppress(WireError):
                metadata = LedgerMetadata.decode(value)
                shown = metadata_json(ledger_id, metadata, created_ms=stat.created_ms)
        members.append((str(ledger_id), shown))
    return members


async def _entries(
    reader: LedgerReader, first: int, last: int, page: int
) -> AsyncIterator[tuple[str, object]]:
    if page > 0:
        yield "Entries for page: ", str(page)
    # As many entries as fit in READ_BYTES_MAX with each read, but one at the least.
    while first <= last:
        for payload in await reader.read(first, last, bytes_max=READ_BYTES_MAX):
            yield str(first), payload.decode("ascii", "replace")
            first += 1
