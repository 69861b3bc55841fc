"""The record of a log in ZooKeeper: the chain of its ledgers, kept by compare-and-set.

A broker that finds the record changed has lost the log to another broker.

Ledgers that the record names no longer are deleted after it was written, so that a crash between
the two leaves garbage and never a hole. The record lists these ledgers, in a property that upstream
carries along, until it is next written after they are gone: the next owner finds and deletes what
is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from geminga_broker.errors import TopicExists
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.records.own_record import OwnRecord
from geminga_protocol.records.managed_ledgers_pb2 import OffloadContext
from geminga_protocol.records.topics.managed_ledger import (
    LedgerRecord,
    ManagedLedgerRecord,
    managed_ledger_path,
)
from geminga_runtime.coordination import Coordination, NodeExists, delete_tree

# What upstream writes into the metadata of every ledger of a log.
LABELS = (("component", b"managed-ledger"), ("application", b"pulsar"))
# The property that lists ledgers to be deleted: decimal ids with commas between them.
GARBAGE_PROPERTY = "geminga.ledgers-to-delete"
# One empty mapping that all logs without properties share: a broker keeps very many logs.
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class LogStore:
    """The node of log ``name``. ``load`` or ``create`` comes first; calls must not overlap.

    The public attributes are what the record says beside the ledgers. Code that changes one must
    call ``save``, and undo the change if that fails.
    """

    __slots__ = (
        "_coordination",
        "_offloads",
        "_record",
        "garbage",
        "name",
        "noted",
        "properties",
        "terminated_at",
    )

    def __init__(self, coordination: Coordination, name: str) -> None:
        self.name = name
        # Replaced, never changed: logs without properties share one mapping.
        self.properties: Mapping[str, str] = NO_PROPERTIES
        # Ledgers that the record surely does not name as part of the log and that may still exist.
        self.garbage: tuple[int, ...] = ()
        # Called for further properties whenever the record is written: the running index.
        self.noted: Callable[[], Mapping[str, str]] = dict
        self._coordination = coordination
        self._record = OwnRecord(coordination, managed_ledger_path(name))
        # The last entry of a terminated log; None for a log that takes entries.
        self.terminated_at: Position | None = None
        # By ledger, what upstream noted of its copy in other storage: written back as it was read.
        self._offloads: dict[int, bytes] | None = None

    async def load(self) -> list[LedgerSpan]:
        """The ledgers of the log. Raises ``NodeMissing`` where there is no such log."""
        record = ManagedLedgerRecord.decode(await self._record.load())
        properties = dict(record.properties)
        # Taken out of the properties: users see theirs only, and ``_encode`` writes the list anew.
        # Another program may have changed the list: what is no number is passed over.
        listed = properties.pop(GARBAGE_PROPERTY, "").split(",")
        self.garbage = tuple(int(each) for each in listed if each.isascii() and each.isdigit())
        self.properties = properties or NO_PROPERTIES
        ended_at = record.terminated_at
        self.terminated_at = None if ended_at is None else Position(*ended_at)
        # None, not an empty dictionary: only logs that came from upstream have any.
        self._offloads = {
            each.ledger_id: each.offload for each in record.ledgers if each.offload is not None
        } or None
        return [
            LedgerSpan(
                each.ledger_id,
                each.entries or 0,
                each.size_bytes or 0,
                each.closed_at_ms or 0,
                is_offloaded=bool(
                    each.offload and OffloadContext.FromString(each.offload).complete
                ),
            )
            for each in record.ledgers
        ]

    async def create(self, spans: Iterable[LedgerSpan], properties: Mapping[str, str]) -> None:
        """Write the first record. Raises ``TopicExists`` where there is one already."""
        self.properties = properties
        try:
            await self._record.create(self._encode(spans, ()), make_parents=True)
        except NodeExists:
            # Another broker's, or that of an attempt of ours whose answer was lost: which of the
            # two is not known here.
            raise TopicExists(self.name) from None

    async def save(self, spans: Iterable[LedgerSpan], *, dropped: Collection[int] = ()) -> None:
        """Replace the record; ``dropped`` are ledgers that it does not name (any more).

        They are garbage from then on. Raises ``VersionMismatch`` where another broker changed it.
        """
        # In the same write that stops naming them: no crash leaves a ledger in neither list.
        garbage = (*self.garbage, *(each for each in dropped if each not in self.garbage))
        await self._record.write(self._encode(spans, garbage))
        # Only when it was written: until then the record may still name these as part of the log.
        self.garbage = garbage

    def _encode(self, spans: Iterable[LedgerSpan], garbage: Collection[int]) -> bytes:
        offloads = self._offloads or {}
        ledgers = tuple(
            LedgerRecord(
                span.ledger_id,
                # Of an open ledger the record says nothing: the next owner finds its end.
                entries=span.entries if span.closed_at_ms else None,
                size_bytes=span.size_bytes if span.closed_at_ms else None,
                closed_at_ms=span.closed_at_ms,
                offload=offloads.get(span.ledger_id),
            )
            for span in spans
        )
        # What is noted wins: the record may still have an older index under that name.
        properties = {**self.properties, **self.noted()}
        if garbage:
            properties[GARBAGE_PROPERTY] = ",".join(map(str, garbage))
        return ManagedLedgerRecord(
            ledgers=ledgers, terminated_at=self.terminated_at, properties=properties
        ).encode()

    async def delete(self) -> None:
        """Delete the record and those of the cursors below it."""
        await delete_tree(self._coordination, self._record.path)
