"""The list of under-replicated ledgers in ZooKeeper: one mark a ledger, naming the lost bookies.

Marking a ledger again adds to its mark, and writes it anew even where it adds nothing: a worker
that found the ledger whole a moment before must not delete the mark, and recognizes by its version
that it was renewed. Working the list off is the business of ``claims``. Facts:
``ZkLedgerUnderreplicationManager`` of Apache BookKeeper.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from geminga_autorecovery.zookeeper.children import children_of
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.ledgers.underreplication import (
    LOCKS_PATH,
    MARK_LEVELS,
    MARKS_PATH,
    UNDERREPLICATION_LAYOUT_PATH,
    UnderreplicatedLedger,
    check_layout,
    encode_layout,
    mark_path,
    marked_ledger_id,
)
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import (
    Coordination,
    NodeExists,
    NodeMissing,
    VersionMismatch,
)

log = logging.getLogger(__name__)

# How often a mark is tried again because another daemon changed or deleted it in between.
MARK_ATTEMPTS_MAX = 16


async def prepare_underreplication(coordination: Coordination) -> None:
    """Make the nodes that auto-recovery needs, where they are missing.

    Raises ``UnsupportedRecord`` or ``MalformedRecord`` where the nodes have another layout.
    """
    # Java's daemons, which may share these nodes, check the layout as well.
    with suppress(NodeExists):
        await coordination.create(UNDERREPLICATION_LAYOUT_PATH, encode_layout(), make_parents=True)
    check_layout((await coordination.get(UNDERREPLICATION_LAYOUT_PATH))[0])
    for path in (MARKS_PATH, LOCKS_PATH):
        with suppress(NodeExists):
            await coordination.create(path, make_parents=True)


async def read_mark(coordination: Coordination, ledger_id: int) -> UnderreplicatedLedger | None:
    """A ledger's mark; None where it has none. One that cannot be read names no bookies.

    Raises ``CoordinationError``.
    """
    try:
        value, _ = await coordination.get(mark_path(ledger_id))
    except NodeMissing:
        return None
    return _decode(ledger_id, value)


@dataclass(frozen=True, slots=True)
class UnderreplicationMarks:
    """Marks ledgers and lists marked ones. All methods raise ``CoordinationError``."""

    coordination: Coordination
    clock: Clock

    async def mark(self, ledger_id: int, missing: Collection[str]) -> None:
        """The ledger lacks copies on these bookies."""
        path = mark_path(ledger_id)
        for _ in range(MARK_ATTEMPTS_MAX):
            # Between the read and the write another daemon may have marked it, or a worker deleted
            # the mark.
            with suppress(NodeExists, NodeMissing, VersionMismatch):
                try:
                    value, stat = await self.coordination.get(path)
                except NodeMissing:
                    mark = self._new_mark(tuple(sorted(missing)))
                    await self.coordination.create(path, mark.encode(), make_parents=True)
                    return
                mark = _decode(ledger_id, value)
                # A bookie is never taken out of a mark: it may have come back without what it
                # lacks.
                known = mark.missing_bookies
                added = tuple(each for each in sorted(missing) if each not in known)
                if added:
                    mark = self._new_mark(known + added)
                # The mark is written even where nothing was added: the version rises, and a worker
                # that has just found the ledger whole leaves the mark.
                await self.coordination.set(path, mark.encode(), version=stat.version)
                return
        # The audit is tried again as a whole, see ``Auditor._persist``.
        raise VersionMismatch(path)

    async def ledgers(self) -> list[int]:
        """The ids of all marked ledgers, ascending."""
        children = self.coordination.children
        directories = [MARKS_PATH]
        # The mark of ledger 4711, by its id in hexadecimal and decimal:
        #
        #     /ledgers/underreplication/ledgers/0000/0000/0000/1267/urL0000004711
        for _ in range(MARK_LEVELS):
            directories = [
                f"{directory}/{name}"
                for directory in directories
                for name in await children_of(children, directory)
            ]
        names = [name for each in directories for name in await children_of(children, each)]
        return sorted(each for each in map(marked_ledger_id, names) if each is not None)

    def _new_mark(self, missing: tuple[str, ...]) -> UnderreplicatedLedger:
        return UnderreplicatedLedger(missing_bookies=missing, marked_at_ms=self.clock.wall_ms())


def _decode(ledger_id: int, value: bytes) -> UnderreplicatedLedger:
    try:
        return UnderreplicatedLedger.decode(value)
    except MalformedRecord as error:
        # It is a mark all the same: the ledger is checked, for bookies that are not registered.
        log.warning("mark not readable", extra={"ledger": ledger_id, "error": str(error)})
        return UnderreplicatedLedger(missing_bookies=())
