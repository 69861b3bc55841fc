"""Whether a bookie of a given id was ever there, so that a mistyped id does not look like a bookie
that holds no ledgers any more.

A bookie is known that is registered, has a cookie, or is in a ledger's metadata. The last takes
long to find out and is checked last: only a bookie whose cookie was deleted by hand needs it.
"""

from __future__ import annotations

from geminga_autorecovery.errors import BookieUnknown
from geminga_autorecovery.removal.decommission import still_on
from geminga_autorecovery.zookeeper.children import children_of
from geminga_autorecovery.zookeeper.ledger_list import ledger_directories, ledgers_in
from geminga_autorecovery.zookeeper.live_bookies import read_live_bookies
from geminga_ledger.metadata.store import LedgerStore
from geminga_protocol.records.bookies.cookies import COOKIES_PATH
from geminga_runtime.coordination import Coordination


async def require_known(bookie_id: str, coordination: Coordination, store: LedgerStore) -> None:
    """Raise ``BookieUnknown`` where there never was such a bookie; ``CoordinationError``."""
    known = await named_bookies(coordination)
    if bookie_id in known:
        return
    # Directory by directory: this ends with the first ledger that names the bookie.
    for directory in await ledger_directories(coordination):
        if await still_on(bookie_id, await ledgers_in(coordination, directory), store):
            return
    raise BookieUnknown(bookie_id, known)


async def named_bookies(coordination: Coordination) -> frozenset[str]:
    """The ids of those registered or with a cookie. Raises ``CoordinationError``."""
    live = await read_live_bookies(coordination.children)
    # One that is down has its cookie, and one whose cookie was deleted by hand may be registered.
    return live.all | await cookie_names(coordination)


async def cookie_names(coordination: Coordination) -> frozenset[str]:
    """The ids of all bookies with a cookie: every one that ever started, until it is removed.

    Raises ``CoordinationError``.
    """
    return frozenset(await children_of(coordination.children, COOKIES_PATH))
