"""The endpoints below ``/api/v1/autorecovery``: the auditor, lost copies, and orders about them.

Facts: ``RecoveryBookieService``, ``DecommissionService``, ``ListUnderReplicatedLedgerService``,
``WhoIsAuditorService``, ``TriggerAuditService``, ``LostBookieRecoveryDelayService`` and
``AutoRecoveryStatusService`` of Apache BookKeeper.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from http import HTTPStatus

from geminga_autorecovery.errors import BookieUnknown
from geminga_autorecovery.removal.bookie_recovery import recover
from geminga_autorecovery.removal.decommission import decommission
from geminga_autorecovery.removal.known_bookies import require_known
from geminga_autorecovery.zookeeper import controls
from geminga_autorecovery.zookeeper.live_bookies import read_live_bookies
from geminga_autorecovery.zookeeper.underreplication_marks import UnderreplicationMarks, read_mark
from geminga_bookie.admin.access import AdminAccess
from geminga_bookie.admin.auditor import current_auditor
from geminga_bookie.admin.documents.messages import (
    Answer,
    Refused,
    Request,
    json_answer,
    text_answer,
)
from geminga_protocol.records.bookies.bookie_info import is_bookie_id
from geminga_protocol.records.bookies.cookies import cookie_path
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.ledgers.underreplication import (
    LOST_BOOKIE_DELAY_PATH,
    decode_lost_bookie_delay,
)
from geminga_runtime.coordination import NodeMissing

log = logging.getLogger(__name__)

# Upstream reads the value as an ``int``.
DELAY_S_MAX = (1 << 31) - 1


async def status(access: AdminAccess, _request: Request) -> Answer:
    """Tell whether auto-recovery is switched on."""
    return json_answer({"enabled": await controls.is_enabled(access.coordination)})


async def set_status(access: AdminAccess, request: Request) -> Answer:
    """Switch auto-recovery on or off, for the whole cluster."""
    words = request.parameters.get("enabled")
    if words is None:
        raise Refused(HTTPStatus.BAD_REQUEST, "parameter enabled=true or false is missing")
    if words.lower() == "true":
        await controls.enable(access.coordination)
    else:
        await controls.disable(access.coordination)
    return await status(access, request)


async def who_is_auditor(access: AdminAccess, _request: Request) -> Answer:
    """Tell the auditor's bookie id."""
    auditor = await current_auditor(access.coordination)
    if auditor is None:
        raise Refused(HTTPStatus.NOT_FOUND, "No auditor elected")
    return text_answer(f"Auditor: {auditor}")


async def list_under_replicated(access: AdminAccess, request: Request) -> Answer:
    """List under-replicated ledgers: all, or those (not) missing the copies of a bookie."""
    missing = request.parameters.get("missingreplica", "")
    not_missing = request.parameters.get("excludingmissingreplica", "")
    marks = UnderreplicationMarks(access.coordination, access.clock)
    found: dict[str, list[str]] = {}
    for ledger_id in await marks.ledgers():
        mark = await read_mark(access.coordination, ledger_id)
        # None: the mark is gone since the ledgers were listed, because the ledger was repaired.
        bookies = list(mark.missing_bookies) if mark is not None else None
        if bookies is None or (missing and missing not in bookies) or not_missing in bookies:
            continue
        found[str(ledger_id)] = bookies
    if not found:
        raise Refused(HTTPStatus.NOT_FOUND, "No under replicated ledgers found")
    if "printmissingreplica" in request.parameters:
        return json_answer(found)
    return json_answer(list(map(int, found)))


async def lost_bookie_delay(access: AdminAccess, _request: Request) -> Answer:
    """Tell how many seconds after it was lost a bookie's copies are made again."""
    return text_answer(f"lostBookieRecoveryDelay value: {await _delay_s(access)}")


async def set_lost_bookie_delay(access: AdminAccess, request: Request) -> Answer:
    """Change that delay."""
    fields = _body_of(request)
    if "delay_seconds" not in fields:
        raise Refused(HTTPStatus.NOT_FOUND, "Request body not contains lostBookieRecoveryDelay.")
    seconds = fields["delay_seconds"]
    # JSON's true and false are ints to Python.
    is_number = isinstance(seconds, int) and not isinstance(seconds, bool)
    if not isinstance(seconds, int) or not is_number or not 0 <= seconds <= DELAY_S_MAX:
        words = f"delay_seconds must be a whole number, 0 to {DELAY_S_MAX}, not {seconds!r}"
        raise Refused(HTTPStatus.BAD_REQUEST, words)
    await controls.set_lost_bookie_delay(access.coordination, seconds)
    return text_answer(f"Success set lostBookieRecoveryDelay to {seconds}")


async def trigger_audit(access: AdminAccess, _request: Request) -> Answer:
    """Have the auditor look for lost bookies now, as it does when the delay is written."""
    if await current_auditor(access.coordination) is None:
        raise Refused(
            HTTPStatus.NOT_FOUND, "Exception when do operation. No auditor elected, to do it"
        )
    # The value stays the same: the auditor takes such a write for the order to audit.
    await controls.set_lost_bookie_delay(access.coordination, await _delay_s(access))
    return text_answer("Success trigger audit.")


async def recover_bookie(access: AdminAccess, request: Request) -> Answer:
    """Start copying all ledgers of a lost bookie; ``delete_cookie`` then removes its cookie."""
    fields = _body_of(request)
    source = fields.get("bookie_src")
    bookie_id = _bookie_id(source[0] if isinstance(source, list) and source else None)
    await _require_known(access, bookie_id)
    # What can be wrong with the order itself was checked before: after the answer only the log
    # tells.
    access.start("recovery of a bookie", _recover(access, bookie_id, _flag(fields)))
    return text_answer("Success send recovery request command.")


async def decommission_bookie(access: AdminAccess, request: Request) -> Answer:
    """Start having the replication workers copy all ledgers of a bookie that was stopped."""
    fields = _body_of(request)
    if "bookie_src" not in fields:
        raise Refused(HTTPStatus.NOT_FOUND, "Request body not contains bookie_src.")
    bookie_id = _bookie_id(fields["bookie_src"])
    # Copying from a bookie that still serves would race with its writers.
    if bookie_id in (await read_live_bookies(access.coordination.children)).all:
        raise Refused(
            HTTPStatus.BAD_REQUEST, f"bookie {bookie_id} is running; stop it first, for good"
        )
    await _require_known(access, bookie_id)
    work = _decommission(access, bookie_id, deletes_cookie=_flag(fields))
    access.start("decommissioning of a bookie", work)
    return text_answer(f"Success send decommission Bookie command {bookie_id}")


# These two run on after their answer: what comes of them is in the log, each ledger that failed
# included.


async def _recover(access: AdminAccess, bookie_id: str, deletes_cookie: bool) -> None:  # noqa: FBT001
    # A client of its own, with an auto-recovery worker's patience: it may run for hours.
    async with access.repair() as repair:
        progress = await recover(
            bookie_id,
            coordination=access.coordination,
            repair=repair,
            clock=access.clock,
            random=access.random,
            on_progress=lambda _progress: None,
            on_trouble=lambda _ledger_id, _why: None,
        )
    facts = {"ledgers": progress.ledgers, "done": progress.done, "failed": progress.failed}
    log.info("bookie recovered", extra={"bookie": bookie_id, **facts})
    # While ledgers name the bookie, its cookie keeps another one from taking its id.
    if deletes_cookie and not progress.failed:
        with suppress(NodeMissing):
            await access.coordination.delete(cookie_path(bookie_id))


async def _decommission(access: AdminAccess, bookie_id: str, *, deletes_cookie: bool) -> None:
    progress = await decommission(
        bookie_id,
        coordination=access.coordination,
        store=access.store,
        clock=access.clock,
        on_progress=lambda _progress: None,
        deletes_cookie=deletes_cookie,
    )
    log.info("bookie decommissioned", extra={"bookie": bookie_id, "ledgers": progress.ledgers})


async def _delay_s(access: AdminAccess) -> int:
    """How long a lost bookie is waited for, in seconds. Raises ``Refused`` where none is set."""
    try:
        value, _ = await access.coordination.get(LOST_BOOKIE_DELAY_PATH)
        return decode_lost_bookie_delay(value)
    except (NodeMissing, MalformedRecord) as error:
        raise Refused(
            HTTPStatus.NOT_FOUND, f"Exception when get lostBookieRecoveryDelay. {error}"
        ) from error


def _body_of(request: Request) -> dict[str, object]:
    if not request.body:
        raise Refused(HTTPStatus.NOT_FOUND, "No request body provide.")
    return request.fields()


def _bookie_id(name: object) -> str:
    if not isinstance(name, str) or not is_bookie_id(name):
        raise Refused(HTTPStatus.BAD_REQUEST, f"bookie_src names no bookie: {name!r}")
    return name


async def _require_known(access: AdminAccess, bookie_id: str) -> None:
    """Raise ``Refused`` for a bookie that neither a cookie nor a ledger names.

    Upstream takes the order and finds nothing to do; its clients look only at the status.
    """
    try:
        await require_known(bookie_id, access.coordination, access.store)
    except BookieUnknown as error:
        raise Refused(HTTPStatus.NOT_FOUND, str(error)) from error


def _flag(fields: dict[str, object]) -> bool:
    """``delete_cookie``: one endpoint of upstream takes a boolean, the other its word."""
    return str(fields.get("delete_cookie", False)).lower() == "true"
