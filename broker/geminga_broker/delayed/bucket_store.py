"""Where buckets are stored: each in a ledger of its own, named by a property of the cursor.

    entry 0    the summaries of all segments: times, and a bit set of entries
    entry n    segment n - 1: time, ledger and entry of each message

A ledger that is being written, or is to be deleted, stands in another property until it is named as
a bucket's, or gone: the next owner of the cursor deletes what a crash left. Only a crash between
the creation of a ledger and that first write of the property leaves one behind; its labels say
which cursor it belonged to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.writing.confirmation_waiter import ConfirmationWaiter
from geminga_ledger import Ledgers
from geminga_protocol.records.topics.delayed_buckets import (
    BucketKey,
    DelayedIndex,
    SegmentSummary,
    bucket_labels,
    buckets_of,
    decode_segment,
    decode_summaries,
)

# Ledgers that are being written, or to be deleted: decimal ids with commas between them.
GARBAGE_PROPERTY = "#pulsar.internal.geminga.ledgers-to-delete"


def garbage_of(properties: Mapping[str, str]) -> list[int]:
    """The ledgers that the cursor's properties say are to be deleted."""
    listed = properties.get(GARBAGE_PROPERTY, "").split(",")
    return [int(each) for each in listed if each.isascii() and each.isdigit()]


def has_buckets(properties: Mapping[str, str]) -> bool:
    """Whether a cursor's properties name any ledger of buckets."""
    return bool(buckets_of(properties)) or GARBAGE_PROPERTY in properties


@dataclass(slots=True, eq=False)
class BucketStore:
    """The buckets of ``cursor``, which is durable. Calls must not overlap, but for reading.

    All methods raise ``LedgerError``, ``CoordinationError``, and ``ServiceNotReady`` where another
    broker has the cursor.
    """

    cursor: Cursor
    ledgers: Ledgers
    # Its name stands in the labels of the ledgers.
    topic: str

    async def write(self, key: BucketKey, summaries: bytes, segments: Iterable[bytes]) -> int:
        """Store a bucket, its summaries and its segments; returns its ledger."""
        writes = ConfirmationWaiter()
        config = self.cursor.config
        writer = await self.ledgers.create(
            ensemble_size=config.ensemble_size,
            write_quorum=config.write_quorum,
            ack_quorum=config.ack_quorum,
            custom=bucket_labels(key, self.topic, self.cursor.name),
            listener=writes,
        )
        ledger_id = writer.ledger_id
        try:
            # Named as garbage before it holds anything: the next owner deletes what a crash leaves.
            await self._change({}, (), [*garbage_of(self.cursor.properties), ledger_id])
            # One entry at a time: writing a bucket is not urgent, and must not delay topics.
            for payload in chain((summaries,), segments):
                await writes.wait_for(writer.append(payload))
            await writer.close()
        except BaseException:
            writer.detach()
            raise
        # One change names the new ledger and takes the former one of that name out. A bucket of
        # that name that could not be read (``_lost``), or one that ``clear`` made unneeded and that
        # is not deleted yet: the ledgers may be read again, and fill the same bucket.
        former = buckets_of(self.cursor.properties).get(key)
        garbage = [each for each in garbage_of(self.cursor.properties) if each != ledger_id]
        if former is not None:
            garbage.append(former)
        await self._change({key.property_name: str(ledger_id)}, (), garbage)
        return ledger_id

    async def summaries(self, ledger_id: int) -> list[SegmentSummary]:
        """The summaries of a bucket's segments. Raises ``MalformedRecord`` too."""
        return decode_summaries(await self._read(ledger_id, 0))

    async def segment(self, ledger_id: int, number: int) -> list[DelayedIndex]:
        """The messages of segment ``number``, from 0 on. Raises ``MalformedRecord`` too."""
        return decode_segment(await self._read(ledger_id, number + 1))

    async def _read(self, ledger_id: int, entry_id: int) -> bytes:
        # Closed ledgers open alike with or without recovery; one that was left open is closed.
        reader = await self.ledgers.open(ledger_id, recover=True)
        limit = self.cursor.config.read_bytes_max
        return (await reader.read(entry_id, entry_id, bytes_max=limit))[0]

    # Deleting

    async def delete(self, keys: Collection[BucketKey]) -> None:
        """Take buckets out of the cursor's properties, then delete their ledgers, and those that
        are left from before."""
        named = buckets_of(self.cursor.properties)
        gone = [named[key] for key in keys if key in named]
        # What a crash of before left goes along.
        garbage = [*garbage_of(self.cursor.properties), *gone]
        if not garbage:
            return
        # First the names: a bucket that is named must exist. Deleting twice does no harm.
        await self._change({}, [key.property_name for key in keys], garbage)
        for ledger_id in garbage:
            await self.ledgers.delete(ledger_id)
        # The list goes last: until then a crash leaves ledgers that the next owner finds in it.
        await self._change({}, (), [])

    async def delete_all(self) -> None:
        """Delete the ledgers of all buckets before the cursor itself is deleted. Its properties are
        not written: its node is about to go."""
        properties = self.cursor.properties
        # A ledger that is named twice, or gone already, does no harm.
        for ledger_id in [*buckets_of(properties).values(), *garbage_of(properties)]:
            await self.ledgers.delete(ledger_id)

    async def _change(
        self, put: Mapping[str, str], remove: Collection[str], garbage: Collection[int]
    ) -> None:
        """Write properties of the cursor, of which ``garbage`` is the list of ledgers to delete."""
        if garbage:
            put = {**put, GARBAGE_PROPERTY: ",".join(map(str, garbage))}
        else:
            remove = [*remove, GARBAGE_PROPERTY]
        await self.cursor.change_properties(put, remove)
