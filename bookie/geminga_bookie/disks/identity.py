"""Who this bookie is: its id and its cookie, the same on all its disks and in ZooKeeper.

A bookie starts only where they agree. The id is made up once and kept in the cookie (the file
``VERSION``), so that it outlives every change of port and host. Cookies are compared as they were
stored, not with today's paths: moving a whole data directory is no fault, a disk that is missing or
belongs to another bookie is one. A directory with data but without a cookie never gets one of
another bookie.

At the first start the disks get their cookies before ZooKeeper does. So a crash in between leaves a
bookie that the cluster does not know yet, and the next start finishes; the other way round, disks
without a cookie would look lost.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping

from geminga_bookie.disks.directories import Directories
from geminga_bookie.errors import (
    BookieError,
    ClusterNotInitialized,
    CookieMismatch,
    CookieMissing,
    CorruptFile,
    DataWithoutCookie,
    DirectoriesChanged,
)
from geminga_bookie.formats import entry_log_v1, journal_v1, log_list_v1
from geminga_protocol.records.bookies.bookie_info import is_bookie_id
from geminga_protocol.records.bookies.cookies import COOKIE_FILE_NAME, Cookie, cookie_path
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.ledgers.ledger_metadata import INSTANCE_ID_PATH
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination, NodeMissing
from geminga_runtime.disk import Disk

log = logging.getLogger(__name__)

_MADE_UP_ID_HEX_DIGITS = 12
# Where a Java bookie keeps all its files, below each of its directories.
_JAVA_DIRECTORY = "current"


class BadBookieId(BookieError):
    """The settings give an id that BookKeeper does not take, or not this directory's."""


async def establish_identity(
    wanted_id: str,
    journals: Directories,
    ledgers: Directories,
    coordination: Coordination,
    clock: Clock,
) -> Cookie:
    """Return this bookie's cookie, checked everywhere; make it at the first start.

    ``wanted_id`` is empty where any id will do. Raises ``ClusterNotInitialized``,
    ``CookieMismatch``, ``CookieMissing``, ``DataWithoutCookie``, ``DirectoriesChanged``,
    ``BadBookieId``, ``CorruptFile``, ``CoordinationError``, ``OSError``.
    """
    try:
        # A cookie with another id means that this ZooKeeper is not that of the bookie's cluster.
        instance_id = (await coordination.get(INSTANCE_ID_PATH))[0].decode()
    except NodeMissing as error:
        raise ClusterNotInitialized(INSTANCE_ID_PATH) from error
    # First the bookie reads every cookie there is, then it checks them, and only then writes any.
    disks = {f"ledger directory {each.path}": each.disk for each in ledgers}
    disks |= {f"journal directory {each.path}": each.disk for each in journals}
    # What each directory holds, None for nothing.
    stored: dict[str, Cookie | None] = {}
    for where, disk in disks.items():
        content = await disk.read_file(COOKIE_FILE_NAME)
        try:
            # A cookie that cannot be read does not count as missing: it may be another bookie's.
            stored[where] = None if content is None else Cookie.decode(content)
        except MalformedRecord as error:
            raise CorruptFile(f"{COOKIE_FILE_NAME} in {where}", 0, str(error)) from error
    known = [cookie for cookie in stored.values() if cookie is not None]
    # The first cookie decides; ``_agreed_cookie`` checks that the others agree with it.
    bookie_id = _bookie_id(wanted_id, known, f"{coordination.session_id}:{clock.wall_ms()}")
    # What the cookie of a new bookie says.
    expected = Cookie(
        bookie_id=bookie_id,
        journal_dirs=journals.paths,
        ledger_dirs=ledgers.paths,
        instance_id=instance_id,
    )
    node = cookie_path(bookie_id)
    try:
        registered = Cookie.decode((await coordination.get(node))[0])
    except NodeMissing:
        registered = None
    except MalformedRecord as error:
        raise CorruptFile(f"node {node} in ZooKeeper", 0, str(error)) from error
    cookie = _agreed_cookie(expected, stored, registered)
    # Paths may change when disks are mounted elsewhere; their number may not. With one journal
    # fewer, what was acknowledged in that one would not be replayed.
    if len(expected.journal_dirs) != len(cookie.journal_dirs):
        raise DirectoriesChanged("journal", expected.journal_dirs, cookie.journal_dirs)
    if len(expected.ledger_dirs) != len(cookie.ledger_dirs):
        raise DirectoriesChanged("ledger", expected.ledger_dirs, cookie.ledger_dirs)
    new_disks = {where: disk for where, disk in disks.items() if stored[where] is None}
    # All directories are checked before the first cookie is written: a refused start changes none.
    await _require_no_data(new_disks)
    # Each file is written as a whole or not at all, and durable on return.
    for disk in new_disks.values():
        await disk.write_file(COOKIE_FILE_NAME, cookie.encode())
    if registered is None:
        # Last of all: what ZooKeeper knows must be on every disk. Fails (``NodeExists``) where
        # another new bookie with this id was faster.
        await coordination.create(node, cookie.encode(), make_parents=True)
        log.info("bookie is new to the cluster", extra={"bookie": bookie_id})
    return cookie


def _agreed_cookie(
    expected: Cookie, stored: dict[str, Cookie | None], registered: Cookie | None
) -> Cookie:
    """The cookie that all places hold, and that those without one must get.

    Raises ``CookieMissing`` where a bookie that the cluster knows lacks one: the disk may be the
    wrong one. Raises ``CookieMismatch``.
    """
    node = cookie_path(expected.bookie_id)
    # The first cookie that is found is what all others are compared with: ZooKeeper's, where the
    # cluster knows the bookie, else the first directory's.
    agreed, agreed_where = registered, node
    if registered is not None and registered.instance_id != expected.instance_id:
        raise CookieMismatch(node, _text(registered), "this cluster", _text(expected))
    for where, cookie in stored.items():
        if cookie is None:
            # A bookie that has served before had a cookie in every directory: this one may be the
            # empty mount point of a disk that is missing.
            if registered is not None:
                raise CookieMissing(where, node, _text(registered))
        elif cookie.instance_id != expected.instance_id:
            raise CookieMismatch(where, _text(cookie), "this cluster", _text(expected))
        elif agreed is None:
            agreed, agreed_where = cookie, where
        elif cookie != agreed:
            raise CookieMismatch(where, _text(cookie), agreed_where, _text(agreed))
    return agreed or expected


async def _require_no_data(disks: Mapping[str, Disk]) -> None:
    """Raise ``DataWithoutCookie`` where a directory that is to get its cookie has data already.

    Upstream refuses whatever else is in such a directory too
    (``LegacyCookieValidation.verifyDirsForNewEnvironment``). Here a file system's own
    ``lost+found``, or the index where it lies beside, is no bookie's data.
    """
    found: dict[str, list[str]] = {}
    for where, disk in disks.items():
        names = [
            name
            for name in await disk.list("")
            if name in (log_list_v1.NAME, _JAVA_DIRECTORY)
            or entry_log_v1.file_number(name) is not None
            or journal_v1.file_number(name) is not None
        ]
        if names:
            found[where] = names
    if found:
        raise DataWithoutCookie(found)


def _bookie_id(wanted: str, known: list[Cookie], unique: str) -> str:
    """The id that the cookies on the disks have, else the wanted one, else one made of ``unique``.

    Raises ``BadBookieId``.
    """
    if wanted and not is_bookie_id(wanted):
        raise BadBookieId(
            f"{wanted!r} is no bookie id: take letters, digits, '.', '-', '_' and ':', "
            "and not 'readonly'"
        )
    if not known:
        # Unique enough: of a ZooKeeper session and a time. Random numbers would make simulations
        # differ from run to run.
        digest = hashlib.sha256(unique.encode()).hexdigest()
        return wanted or f"bookie-{digest[:_MADE_UP_ID_HEX_DIGITS]}"
    stored = known[0].bookie_id
    if wanted and wanted != stored:
        raise BadBookieId(
            f"the settings say that this is bookie {wanted}, its directory that it is {stored}. "
            "Leave the id out of the settings, or give this bookie the directory that is its own."
        )
    return stored


def _text(cookie: Cookie) -> str:
    return cookie.encode().decode()
