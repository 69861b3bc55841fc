"""Lists all ledgers of the cluster, a directory of ZooKeeper at a time.

Facts: ``HierarchicalLedgerManager`` of Apache BookKeeper; the paths are ``ledger_path``'s.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from geminga_autorecovery.zookeeper.children import children_of
from geminga_protocol.records.ledgers.ledger_metadata import LEDGERS_PATH, ledger_id_of
from geminga_runtime.coordination import Coordination

# How many levels of four digits are below a directory of two digits (ids of up to ten digits), and
# of three (longer ones).
_LEVELS = {2: 1, 3: 3}
_TOP = re.compile(r"\d{2,3}", re.ASCII)
_INNER = re.compile(r"\d{4}", re.ASCII)


async def ledger_directories(coordination: Coordination) -> list[str]:
    """The directories that have ledgers' nodes, at most 10,000 each. Raises ``CoordinationError``.

    There is one for each 10,000 ids in use, so their list is short.
    """
    children = coordination.children
    found: list[str] = []
    for top in await children_of(children, LEDGERS_PATH):
        # Other nodes are there, too: cookies, available bookies, the generators of ids.
        if _TOP.fullmatch(top):
            paths = [f"{LEDGERS_PATH}/{top}"]
            for _ in range(_LEVELS[len(top)]):
                paths = [
                    f"{path}/{name}"
                    for path in paths
                    for name in await children_of(children, path)
                    if _INNER.fullmatch(name)
                ]
            # Ledger 4711 is below /ledgers/00/0000, and 2147483648 below
            # /ledgers/000/0000/0021/4748.
            found += paths
    return found


async def ledgers_in(coordination: Coordination, directory: str) -> list[int]:
    """The ids of the ledgers in one directory, ascending. Raises ``CoordinationError``."""
    names = await children_of(coordination.children, directory)
    ids = (ledger_id_of(f"{directory}/{name}") for name in names)
    return sorted(each for each in ids if each is not None)


async def visit_all(
    ledger_ids: list[int], visit: Callable[[int], Awaitable[None]], *, at_once_max: int
) -> None:
    """Call ``visit`` for each, so many at once; raises the first error.

    It is raised after all visits of its group have ended, and no further group begins.
    """
    for start in range(0, len(ledger_ids), at_once_max):
        # Groups are simpler than a stream with a bound, at the price that the slowest visit of a
        # group holds up the next one.
        results = await asyncio.gather(
            *map(visit, ledger_ids[start : start + at_once_max]), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
