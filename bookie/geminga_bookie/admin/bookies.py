"""The endpoints about all bookies of the cluster: who there are, and how much room each has.

Facts: ``ListBookiesService``, ``ListBookieInfoService`` and ``ClusterInfoService`` of Apache
BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

from geminga_autorecovery import controls
from geminga_autorecovery.known_bookies import cookie_names
from geminga_autorecovery.live_bookies import read_live_bookies
from geminga_autorecovery.marks import Marks
from geminga_bookie.admin.access import AdminAccess
from geminga_bookie.admin.auditor import current_auditor
from geminga_bookie.admin.bookie_requests import BookieSpace, ask_space
from geminga_bookie.admin.documents.messages import Answer, Refused, Request, json_answer
from geminga_ledger.errors import BookieUnavailable

log = logging.getLogger(__name__)

ASKED_AT_ONCE_MAX = 32
_UNITS = ("", "KB", "MB", "GB", "TB")


async def list_bookies(access: AdminAccess, request: Request) -> Answer:
    """The writable bookies, or with ``type=ro`` the read-only ones.

    ``print_hostnames=true`` says where each listens.
    """
    live = await read_live_bookies(access.coordination.children)
    is_read_only = request.parameters.get("type") == "ro"
    names = sorted(live.read_only if is_read_only else live.writable)
    if not request.is_set("print_hostnames"):
        return json_answer(dict.fromkeys(names))
    return json_answer({name: await _host(access, name) for name in names})


async def cluster_info(access: AdminAccess, _request: Request) -> Answer:
    """The auditor, whether ledgers lack copies, and how many bookies there are of each kind."""
    coordination = access.coordination
    live = await read_live_bookies(coordination.children)
    auditor = await current_auditor(coordination)
    known = await cookie_names(coordination)
    return json_answer(
        {
            "auditorElected": auditor is not None,
            "auditorId": auditor or "",
            "clusterUnderReplicated": bool(await Marks(coordination, access.clock).ledgers()),
            "ledgerReplicationEnabled": await controls.is_enabled(coordination),
            "totalBookiesCount": len(known),
            "writableBookiesCount": len(live.writable),
            "readonlyBookiesCount": len(live.read_only),
            "unavailableBookiesCount": len(known) - len(live.writable) - len(live.read_only),
        }
    )


async def list_bookie_info(access: AdminAccess, _request: Request) -> Answer:
    """Free and total room of every writable bookie that answers, and of all together."""
    live = await read_live_bookies(access.coordination.children)
    limit = asyncio.Semaphore(ASKED_AT_ONCE_MAX)

    async def ask(name: str) -> tuple[str, BookieSpace | None]:
        async with limit:
            return name, await _space(access, name)

    answers = await asyncio.gather(*map(ask, sorted(live.writable)))
    found = {name: space for name, space in answers if space is not None}
    if not found:
        raise Refused(HTTPStatus.NOT_FOUND, "Not found any Bookie info.")
    content = {name: f": {{{_words(space)}}}," for name, space in found.items()}
    together = BookieSpace(
        sum(each.free_bytes for each in found.values()),
        sum(each.total_bytes for each in found.values()),
    )
    content["ClusterInfo: "] = f"{{{_words(together)}}}"
    return json_answer(content)


def readable(size_bytes: int) -> str:
    """``(75.677GB)``, cut off after three digits; nothing below 1,000 bytes. Upstream's words."""
    unit = min((len(str(size_bytes)) - 1) // 3, len(_UNITS) - 1)
    if unit < 1:
        return ""
    whole, thousandths = divmod(size_bytes // 1000 ** (unit - 1), 1000)
    digits = f"{whole}.{thousandths:03d}".rstrip("0").rstrip(".")
    return f"({digits}{_UNITS[unit]})"


def _words(space: BookieSpace) -> str:
    free, total = space.free_bytes, space.total_bytes
    return f"Free: {free}{readable(free)}, Total: {total}{readable(total)}"


async def _host(access: AdminAccess, bookie_id: str) -> str | None:
    try:
        return (await access.registry.resolve(bookie_id))[0]
    except BookieUnavailable:
        return None


async def _space(access: AdminAccess, bookie_id: str) -> BookieSpace | None:
    try:
        address = await access.registry.resolve(bookie_id)
        return await ask_space(access.network, bookie_id, address)
    except BookieUnavailable as error:
        log.info("bookie does not say how much room it has", extra={"error": str(error)})
        return None
