"""The endpoints about this bookie alone: its room, state and files, and whether it works.

Facts: ``BookieInfoService``, ``BookieStateService``, ``BookieStateReadOnlyService``,
``BookieIsReadyService``, ``BookieSanityService``, ``GetLastLogMarkService``,
``ListDiskFilesService``, ``ConfigurationService`` and ``HeartbeatService`` of Apache BookKeeper.
"""

from __future__ import annotations

from http import HTTPStatus

from geminga_bookie.admin.access import AdminAccess
from geminga_bookie.admin.documents.messages import (
    Answer,
    Refused,
    Request,
    json_answer,
    text_answer,
)
from geminga_bookie.admin.sanity import is_sane
from geminga_bookie.disks.directories import Directories
from geminga_bookie.formats import entry_log_v1, journal_v1
from geminga_bookie.formats.journal_v1 import JOURNAL_BEGINNING

# Why adds are refused after an order to refuse them, until the opposite order or a restart.
ORDERED = "read-only by order"
# By the value of ``file_type``: what upstream calls the files in its answer.
_KINDS = {"journal": "journal files", "entrylog": "entrylog files", "index": "index files"}


async def heartbeat(_access: AdminAccess, _request: Request) -> Answer:
    """Answer, which shows that the process lives."""
    return text_answer("OK\n")


async def server_config(access: AdminAccess, _request: Request) -> Answer:
    """Show the settings the bookie runs with, under our names, as words."""
    return json_answer(dict(access.configuration))


async def info(access: AdminAccess, _request: Request) -> Answer:
    """Tell the room on its ledger disks, in bytes. Raises ``OSError``."""
    space = access.bookie.disk_space()
    return json_answer({"freeSpace": space.free_bytes, "totalSpace": space.total_bytes})


async def state(access: AdminAccess, _request: Request) -> Answer:
    """Tell whether it runs, and which adds it takes; it ends itself after a journal has failed."""
    storage = access.bookie.storage
    # Upstream's names for it: a bookie whose journal failed shuts itself down.
    has_failed = access.bookie.failed.is_set()
    return json_answer(
        {
            "running": not has_failed,
            "readOnly": storage.is_read_only,
            "shuttingDown": has_failed,
            "availableForHighPriorityWrites": storage.takes_recovery_adds,
        }
    )


async def is_ready(access: AdminAccess, _request: Request) -> Answer:
    """Tell whether it serves."""
    if access.bookie.failed.is_set():
        # These are upstream's words. Here the bookie has failed: HTTP is served only once it is
        # open.
        words = "Bookie is not fully started yet"
        return text_answer(words, HTTPStatus.SERVICE_UNAVAILABLE)
    return text_answer("OK")


async def read_only(access: AdminAccess, _request: Request) -> Answer:
    """Tell whether it refuses adds, for whatever reason."""
    return json_answer({"readOnly": access.bookie.storage.is_read_only})


async def set_read_only(access: AdminAccess, request: Request) -> Answer:
    """Refuse adds, except those of recovery, or take them again; tell what holds then.

    A bookie that is read-only for another reason too, full disks say, stays so.
    """
    # Strict: a misspelt name must not be taken for an order.
    fields = request.fields()
    wanted = fields.pop("readOnly", None)
    if not isinstance(wanted, bool) or fields:
        raise Refused(HTTPStatus.BAD_REQUEST, 'the body must be {"readOnly": true} or false')
    storage = access.bookie.storage
    if wanted:
        storage.refuse_adds(ORDERED, takes_recovery=True)
    else:
        storage.allow_adds(ORDERED)
    return json_answer({"readOnly": storage.is_read_only})


async def sanity(access: AdminAccess, _request: Request) -> Answer:
    """Test whether a small ledger can be written and read; a read-only bookie is not tested."""
    is_read_only = access.bookie.storage.is_read_only
    # The test could only fail: no writable ledger can be made on a read-only bookie.
    passed = False if is_read_only else await is_sane(access)
    return json_answer({"passed": passed, "readOnly": is_read_only})


async def last_log_mark(access: AdminAccess, _request: Request) -> Answer:
    """Tell from where each journal would be replayed, as the last checkpoint left it."""
    directories = access.bookie.journal_directories
    # From the index, not from the running journals: it is what a crash now would go back to.
    marks = access.bookie.storage.index.journal_marks()
    if not marks:
        marks = (JOURNAL_BEGINNING,) * len(directories)
    content: dict[str, str] = {}
    for directory, mark in zip(directories, marks, strict=False):
        name = journal_v1.file_name(mark.file_number)
        if len(directories) > 1:  # journals number their files alike
            name = f"{directory.path}/{name}"
        content[f"LastLogMark: Journal Id - {mark.file_number}({name})"] = f"Pos - {mark.offset}"
    return json_answer(content)


async def list_disk_file(access: AdminAccess, request: Request) -> Answer:
    """List its files, a tab behind each name: all, or those of ``file_type``."""
    wanted = request.parameters.get("file_type", "")
    bookie = access.bookie
    content: dict[str, str] = {}
    # A kind that is not known means all.
    for kind in (wanted,) if wanted in _KINDS else _KINDS:
        if kind == "journal":
            names = await _names(bookie.journal_directories, journal_v1.SUFFIX)
        elif kind == "entrylog":
            names = await _names(bookie.ledger_directories, entry_log_v1.SUFFIX)
        else:
            names = list(access.index_files())
        content[_KINDS[kind]] = "".join(f"{name}\t" for name in names)
    return json_answer(content)


async def _names(directories: Directories, suffix: str) -> list[str]:
    return [
        name
        for directory in directories
        for name in await directory.disk.list("")
        if name.endswith(suffix)
    ]
