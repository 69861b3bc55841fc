"""``cookie``: which bookies ZooKeeper knows, with which directories; or the text of one's cookie.

The text is what the file VERSION holds in each of its directories: so a lost file is made again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.errors import NoCookie
from geminga_cli.display.text import NOTHING, table
from geminga_protocol.records.cookies import COOKIES_PATH, Cookie, cookie_path
from geminga_protocol.records.errors import MalformedRecord
from geminga_runtime.coordination import NodeMissing

READS_MAX = 32


async def show_cookies(cluster: Cluster, options: argparse.Namespace) -> int:
    """All cookies, or the text of one; 1 where one cannot be read. Raises ``NoCookie``."""
    if options.bookie:
        return await _show_text(cluster, options)
    names = await _known(cluster)
    limit = asyncio.Semaphore(READS_MAX)

    async def read(name: str) -> bytes | None:
        async with limit:
            return await _read(cluster, name)

    values = await asyncio.gather(*map(read, names))
    found = [_facts(name, value) for name, value in zip(names, values, strict=True) if value]
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        columns = ("bookie", "journal_directories", "ledger_directories")
        rows = ([_cell(each[name]) for name in columns] for each in found)
        for line in table(columns, rows):
            print(line)
        for each in found:
            if each["error"]:
                print(each["error"])
    return int(any(each["error"] for each in found))


async def cookie_text(cluster: Cluster, bookie_id: str) -> tuple[bytes, int]:
    """What ZooKeeper has of a bookie, and its version there. Raises ``NoCookie``."""
    try:
        value, stat = await cluster.coordination.get(cookie_path(bookie_id))
    except NodeMissing as error:
        raise NoCookie(bookie_id, await _known(cluster)) from error
    return value, stat.version


async def _show_text(cluster: Cluster, options: argparse.Namespace) -> int:
    value, _ = await cookie_text(cluster, options.bookie)
    facts = _facts(options.bookie, value)
    if options.json:
        print(json.dumps(facts))
    elif facts["error"]:
        print(facts["error"], file=sys.stderr)  # what goes to a file must be a cookie or nothing
    else:
        sys.stdout.write(value.decode())
    return int(bool(facts["error"]))


async def _known(cluster: Cluster) -> list[str]:
    try:
        return sorted(await cluster.coordination.children(COOKIES_PATH))
    except NodeMissing:
        return []


async def _read(cluster: Cluster, bookie_id: str) -> bytes | None:
    try:
        return (await cluster.coordination.get(cookie_path(bookie_id)))[0]
    except NodeMissing:
        return None


def _facts(bookie_id: str, value: bytes) -> dict[str, object]:
    try:
        cookie = Cookie.decode(value)
    except MalformedRecord as error:
        return {
            "bookie": bookie_id,
            "journal_directories": None,
            "ledger_directories": None,
            "error": f"the cookie of {bookie_id} in ZooKeeper cannot be read: {error}",
        }
    return {
        "bookie": bookie_id,
        "journal_directories": cookie.journal_dirs,
        "ledger_directories": cookie.ledger_dirs,
        "error": None,
    }


def _cell(value: object) -> object:
    return (",".join(value) or NOTHING) if isinstance(value, tuple) else value
