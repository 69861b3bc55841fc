"""``cookie``: the bookies that ZooKeeper knows, with their directories; or the cookie of one.

The cookie is the text of the file VERSION in each of a bookie's directories, so that a lost file
can be restored from it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.errors import NoCookie
from geminga_cli.bookie_admin.report import print_report
from geminga_cli.display.text import NOTHING
from geminga_protocol.records.bookies.cookies import COOKIES_PATH, Cookie, cookie_path
from geminga_protocol.records.errors import MalformedRecord
from geminga_runtime.coordination import NodeMissing

# Cookies that are read from ZooKeeper at the same time.
READS_MAX = 32


async def show_cookies(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print all cookies, or the text of one; returns 1 if one cannot be read.

    Raises ``NoCookie``.
    """
    if options.bookie:
        value, _ = await cookie_text(cluster, options.bookie)
        facts = _facts(options.bookie, value)
        if options.json:
            print(json.dumps(facts))
        elif facts["error"]:
            # Not on standard output: what is redirected into a file must be a cookie or nothing.
            print(facts["error"], file=sys.stderr)
        else:
            # Byte for byte, so that it can be redirected into VERSION.
            sys.stdout.write(value.decode())
        return int(bool(facts["error"]))

    # Without a bookie: the list of all.
    names = await _bookies_with_cookies(cluster)
    limit = asyncio.Semaphore(READS_MAX)

    async def read(name: str) -> bytes | None:
        async with limit:
            try:
                return (await cluster.coordination.get(cookie_path(name)))[0]
            except NodeMissing:  # deleted since its name was listed
                return None

    values = await asyncio.gather(*map(read, names))
    # An empty value is no cookie, and means the same as a deleted one.
    found = [_facts(name, value) for name, value in zip(names, values, strict=True) if value]
    columns = ("bookie", "journal_directories", "ledger_directories")
    return print_report(found, columns, _cell, as_json=options.json)


async def cookie_text(cluster: Cluster, bookie_id: str) -> tuple[bytes, int]:
    """The cookie of a bookie, and the version of its node in ZooKeeper. Raises ``NoCookie``."""
    try:
        value, stat = await cluster.coordination.get(cookie_path(bookie_id))
    except NodeMissing as error:
        raise NoCookie(bookie_id, await _bookies_with_cookies(cluster)) from error
    return value, stat.version


async def _bookies_with_cookies(cluster: Cluster) -> list[str]:
    try:
        return sorted(await cluster.coordination.children(COOKIES_PATH))
    except NodeMissing:
        return []


def _facts(bookie_id: str, value: bytes) -> dict[str, object]:
    """A cookie as a record; ``error`` is the reason why it cannot be read, or None."""
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
