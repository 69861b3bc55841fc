"""``restore-cookie`` and ``delete-cookie``: restore a lost VERSION file, forget a bookie.

They do what ``bookkeeper shell cookie_generate`` and ``cookie_delete`` do. But they overwrite
nothing, and delete no cookie that a bookie or a ledger still needs.
"""

from __future__ import annotations

import argparse
import json
from contextlib import closing

from geminga_autorecovery.removal.decommission import ledgers_of
from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.cookies import cookie_text
from geminga_cli.bookie_admin.errors import (
    BookieNeeded,
    NotConfirmed,
    NotRestored,
    StillRegistered,
)
from geminga_protocol.records.bookies.cookies import COOKIE_FILE_NAME, Cookie, cookie_path
from geminga_runtime.file_disk import FileDisk


async def restore_cookie(cluster: Cluster, options: argparse.Namespace) -> int:
    """Write the file VERSION into the bookie's directories that lost it, as ZooKeeper has it.

    Raises ``NoCookie``, ``NotRestored``, ``MalformedRecord``, ``OSError``.
    """
    # The bytes themselves are written below: a cookie that was encoded anew might differ in its
    # text.
    value, _ = await cookie_text(cluster, options.bookie)
    cookie = Cookie.decode(value)
    # All directories are checked before the first is written to.
    for directory in options.directory:
        if not directory.is_dir():
            raise NotRestored(directory, "is no directory: name one that the bookie keeps data in")
        if (directory / COOKIE_FILE_NAME).exists():
            raise NotRestored(
                directory,
                f"has a {COOKIE_FILE_NAME} already: move it away if it is not the bookie's",
            )
    # A failure half-way leaves some directories with a cookie and some without. Repeated for the
    # others alone, the command goes on where it stopped.
    for directory in options.directory:
        with closing(FileDisk(directory, threads=1)) as disk:
            await disk.write_file(COOKIE_FILE_NAME, value)
    written = [str(directory / COOKIE_FILE_NAME) for directory in options.directory]
    known = (*cookie.journal_dirs, *cookie.ledger_dirs)
    if options.json:
        print(json.dumps({"bookie": options.bookie, "written": written, "directories": known}))
        return 0
    for path in written:
        print(f"{path} is written: it belongs to bookie {options.bookie}")
    print(f"the bookie was made with: {', '.join(known)}")
    return 0


async def delete_cookie(cluster: Cluster, options: argparse.Namespace) -> int:
    """Delete the cookie of a bookie that is gone for good.

    Raises ``NoCookie``, ``StillRegistered``, ``BookieNeeded``, ``NotConfirmed``.
    """
    bookie_id = options.bookie
    # Stage 1: nothing may need the bookie any more. Each check reads what is there now; between the
    # last of them and the deletion only the version of the cookie is guarded.
    _, version = await cookie_text(cluster, bookie_id)
    # Checked first, because it is cheap; the next one reads every ledger's metadata.
    if bookie_id in (await cluster.live_bookies()).all:
        raise StillRegistered(bookie_id, "stop it first, for good")
    # Of all ledgers, closed ones included: their copies on the bookie would be lost with it.
    ledger_ids = await ledgers_of(bookie_id, cluster.coordination, cluster.store)
    if ledger_ids:
        raise BookieNeeded(bookie_id, ledger_ids)
    if not options.yes:
        raise NotConfirmed(
            f"bookie {bookie_id} is not registered and no ledger is on it. Without its cookie it "
            "cannot start on its directories again"
        )
    # Stage 2: the deletion.
    #
    # Only the version that was read: a bookie that starts meanwhile may have rewritten it.
    await cluster.coordination.delete(cookie_path(bookie_id), version=version)
    if options.json:
        print(json.dumps({"bookie": bookie_id, "deleted": True}))
    else:
        print(f"bookie {bookie_id} is forgotten")
    return 0
