"""What was sent in clusters that replicate to each other and what was read there, and its checks:
nothing else do they go by.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from geminga import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType
from geminga_simulation.errors import InvariantViolated

# What each cluster sends last of all ends so; it is not looked for elsewhere.
END = b"/end"
# The last messages of each cluster, which are sent when all is calm.
LAST_MESSAGES = 5
# Messages named in an error; more of them tell no more.
NAMED_MAX = 5


@dataclass(slots=True)
class Book:
    """What applications sent and what the topic of each cluster held, by cluster."""

    names: tuple[str, ...]
    sent: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    # Messages that are for some other clusters alone, or for none.
    only_for: dict[bytes, tuple[str, ...]] = field(default_factory=dict[bytes, tuple[str, ...]])
    read: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    # Of each message read the definition of its schema, by the version that the message tells.
    schemas: dict[str, dict[bytes, bytes]] = field(default_factory=dict[str, dict[bytes, bytes]])
    # (from, to): for some time the one was not to be replicated to the other.
    interrupted: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    # Clusters where the topic's schemas were deleted once.
    forgetful: set[str] = field(default_factory=set[str])
    # What the applications of each cluster tell the story: they have a producer; all is stored.
    is_ready: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    has_sent: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    # What the story tells them: to begin, that the last messages may follow, and to read.
    are_replicating: asyncio.Event = field(default_factory=asyncio.Event)
    is_calm: asyncio.Event = field(default_factory=asyncio.Event)
    is_replicated: asyncio.Event = field(default_factory=asyncio.Event)

    async def told(self, what: asyncio.Semaphore) -> None:
        """Return when all clusters have told it."""
        for _ in self.names:
            await what.acquire()


def schema_of(name: str) -> SchemaInfo:
    """The schema of the messages of cluster ``name``; all others are compatible with it."""
    maybe = {"name": name, "type": ["null", "string"], "default": None}
    record = {"type": "record", "name": "Order", "fields": [maybe]}
    return SchemaInfo(SchemaType.JSON, definition=json.dumps(record).encode())


def check_schemas(book: Book, having: Collection[str]) -> None:
    """Everywhere each message tells the schema that it was sent with: those of the clusters
    ``having`` one. Where schemas were deleted, there and of what came from there, it may tell none;
    never another."""
    for reader, found in book.schemas.items():
        read = set(book.read[reader])
        wanted = {
            payload: schema_of(origin).definition
            for origin in having
            for payload in book.sent[origin]
            if payload in read
        }
        ours = {each: known for each, known in found.items() if not each.endswith(END)}
        wrong = sorted(
            payload
            for payload in ours.keys() | wanted.keys()
            if ours.get(payload) != wanted.get(payload)
            and (ours.get(payload) or not book.forgetful & {reader, _origin(payload)})
        )
        if wrong:
            raise InvariantViolated(f"in {reader} other schemas than sent: {wrong[:NAMED_MAX]}")


def _origin(payload: bytes) -> str:
    return payload.partition(b"/")[0].decode()


def check(book: Book, *, begins_at_first: bool) -> None:
    """Each topic has every message of every cluster once, those of a cluster in its order.

    Where replication ``begins_at_first`` of what there is, it may have been interrupted; else what
    was sent before it was calm may be missing, but for what comes before one that is there.
    """
    for reader, read in book.read.items():
        for origin, sent in book.sent.items():
            found = [
                each
                for each in read
                if each.startswith(f"{origin}/".encode()) and not each.endswith(END)
            ]
            is_whole = begins_at_first or (origin, reader) not in book.interrupted
            needed = set(sent if is_whole else sent[-LAST_MESSAGES:]) | set(found)
            wanted = [
                each
                for each in sent
                if each in needed and reader in (origin, *book.only_for.get(each, (reader,)))
            ]
            if found != wanted:
                raise InvariantViolated(_difference(origin, reader, wanted, found))


def _difference(origin: str, reader: str, wanted: Sequence[bytes], found: Sequence[bytes]) -> str:
    times = Counter(found)
    differences = {
        "lost": [each for each in wanted if each not in times],
        "repeated": [each for each, count in times.items() if count > 1],
        "not for it": sorted(times.keys() - set(wanted)),
    }
    told = [f"{what}: {which[:NAMED_MAX]}" for what, which in differences.items() if which]
    return f"{reader} has of {origin} {len(found)} messages instead of {len(wanted)}, " + (
        "; ".join(told) or "in another order"
    )
