"""The endpoints about all bookies of the cluster: which there are, and how much room each has.

Facts: ``ListBookiesService``, ``ListBookieInfoService`` and ``ClusterInfoService`` of Apache
BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

from geminga_autorecovery.removal.known_bookies import cookie_names
from geminga_autorecovery.zookeeper import controls
from geminga_autorecovery.zookeeper.live_bookies import read_live_bookies
from geminga_autorecovery.zookeeper.underreplication_marks import UnderreplicationMarks
from geminga_bookie.admin.access import AdminAccess
from geminga_bookie.admin.auditor import current_auditor
from geminga_bookie.admin.bookie_requests import BookieSpace, ask_space
from geminga_bookie.admin.documents.messages import Answer, Refused, Request, json_answer
from geminga_ledger.errors import BookieUnavailable

log = logging.getLogger(__name__)

# Bookies that are asked for their room at once: a connection each.
ASKED_AT_ONCE_MAX = 32
_UNITS = ("", "KB", "MB", "GB", "TB")


async def list_bookies(access: AdminAccess, request: Request) -> Answer:
    """List the writable bookies, or with ``type=ro`` the read-only ones.

    With ``print_hostnames=true``, also the host of each; null for one that does not say.
    """
    live = await read_live_bookies(access.coordination.children)
    is_read_only = request.parameters.get("type") == "ro"
    names = sorted(live.read_only if is_read_only else live.writable)
    if not request.is_set("print_hostnames"):
        return json_answer(dict.fromkeys(names))
    hosts: dict[str, str | None] = {}
    for name in names:
        try:
            hosts[name] = (await access.registry.resolve(name))[0]
        except BookieUnavailable:
            hosts[name] = None
    return json_answer(hosts)


async def cluster_info(access: AdminAccess, _request: Request) -> Answer:
    """Tell the auditor, whether ledgers lack copies, and how many bookies there are, by kind."""
    coordination = access.coordination
    live = await read_live_bookies(coordination.children)
    auditor = await current_auditor(coordination)
    # Every bookie that was ever added has a cookie, until it is decommissioned.
    known = await cookie_names(coordination)
    return json_answer(
        {
            "auditorElected": auditor is not None,
            "auditorId": auditor or "",
            "clusterUnderReplicated": bool(
                await UnderreplicationMarks(coordination, access.clock).ledgers()
            ),
            "ledgerReplicationEnabled": await controls.is_enabled(coordination),
            "totalBookiesCount": len(known),
            "writableBookiesCount": len(live.writable),
            "readonlyBookiesCount": len(live.read_only),
            "unavailableBookiesCount": len(known) - len(live.writable) - len(live.read_only),
        }
    )


async def list_bookie_info(access: AdminAccess, _request: Request) -> Answer:
    """Tell the free and total room of every writable bookie that answers, and of all together."""
    live = await read_live_bookies(access.coordination.children)
    limit = asyncio.Semaphore(ASKED_AT_ONCE_MAX)

    async def ask(name: str) -> tuple[str, BookieSpace | None]:
        async with limit:
            try:
                address = await access.registry.resolve(name)
                return name, await ask_space(access.network, name, address)
            except BookieUnavailable as error:
                log.info("bookie does not say how much room it has", extra={"error": str(error)})
                return name, None

    # One bookie that does not answer costs its timeout, not the whole list.
    answers = await asyncio.gather(*map(ask, sorted(live.writable)))
    found = {name: space for name, space in answers if space is not None}
    if not found:
        raise Refused(HTTPStatus.NOT_FOUND, "Not found any Bookie info.")
    # The odd values, with a colon before and a comma behind them, are upstream's.
    content = {name: f": {{{_words(space)}}}," for name, space in found.items()}
    together = BookieSpace(
        sum(each.free_bytes for each in found.values()),
        sum(each.total_bytes for each in found.values()),
    )
    content["ClusterInfo: "] = f"{{{_words(together)}}}"
    return json_answer(content)


def readable(size_bytes: int) -> str:
    """``(75.677GB)``, cut off after three digits; nothing below 1,000 bytes. Upstream's words."""
    # The unit goes by the number of digits: 1000 bytes are 1KB.
    unit = min((len(str(size_bytes)) - 1) // 3, len(_UNITS) - 1)
    if unit < 1:
        return ""
    whole, thousandths = divmod(size_bytes // 1000 ** (unit - 1), 1000)
    digits = f"{whole}.{thousandths:03d}".rstrip("0").rstrip(".")
    return f"({digits}{_UNITS[unit]})"


def _words(space: BookieSpace) -> str:
    free, total = space.free_bytes, space.total_bytes
    return f"Free: {free}{readable(free)}, Total: {total}{readable(total)}"
