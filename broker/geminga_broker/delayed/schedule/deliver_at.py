"""Until when an entry is delayed: found without parsing the metadata of those that are not. Pure.

Most subscriptions have no delayed message at all. The tag of the field is searched for in the bytes
of the metadata; only where these two bytes occur, which may be by chance, the metadata is parsed.
A *plain* entry is one that is surely not delayed.
"""

from __future__ import annotations

from collections.abc import Sequence

from geminga_broker.managed_ledger.positions import Entry
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.messages.payload import (
    CHECKSUM_HEAD_BYTES,
    SIZE_BYTES,
    metadata_bounds,
    parse_metadata,
)

# MessageMetadata.deliver_at_time is field 19, a varint: (19 << 3 | 0) as a varint.
DELIVER_AT_TAG = b"\x98\x01"
NOT_DELAYED = 0

# Most payloads are ``[magic 0x0e01][crc32c][metadata size][metadata][body]``, with nothing of the
# broker's in front: then the metadata begins at a fixed place.
_USUAL_START = b"\x0e\x01"
_SIZE_END = CHECKSUM_HEAD_BYTES + SIZE_BYTES
_size_of = int.from_bytes


def is_plain(payload: bytes) -> bool:
    """Whether the entry is surely not delayed: a fifth of a microsecond, whatever its size."""
    if payload.startswith(_USUAL_START):
        # A size beyond the payload does no harm: ``find`` ends with the payload.
        end = _SIZE_END + _size_of(payload[CHECKSUM_HEAD_BYTES:_SIZE_END])
        return payload.find(DELIVER_AT_TAG, _SIZE_END, end) < 0
    return deliver_at_ms(payload) == NOT_DELAYED


def plain_end(run: Sequence[Entry], start: int) -> int:
    """The index of the first entry of ``run`` from ``start`` on that is not surely plain.

    HOT: one loop without calls of our own, as it runs for every entry of a Shared subscription.
    """
    find_from, tag, size_of = _SIZE_END, DELIVER_AT_TAG, _size_of
    for index in range(start, len(run)):
        payload = run[index][1]
        if payload[:2] != _USUAL_START or (
            payload.find(
                tag, find_from, find_from + size_of(payload[CHECKSUM_HEAD_BYTES:find_from])
            )
            >= 0
        ):
            return index
    return len(run)


def deliver_at_ms(payload: bytes) -> int:
    """Until when (Unix time) the producer wants the entry held back; 0 for an entry without delay.

    Where this is later than the time of publishing, TTL counts from here.
    """
    return _times(payload)[0]


def is_delayed_longer(payload: bytes, limit_ms: int) -> bool:
    """Whether it is to be held back for longer than ``limit_ms`` after it was published."""
    # First the quick way: publishers send mostly entries without a delay.
    if is_plain(payload):
        return False
    deliver_at, published = _times(payload)
    return deliver_at - published > limit_ms


def _times(payload: bytes) -> tuple[int, int]:
    """When to deliver, and when it was published; both 0 where it is not delayed."""
    try:
        start, end = metadata_bounds(payload, 0, len(payload))
        if payload.find(DELIVER_AT_TAG, start, end) < 0:
            return NOT_DELAYED, NOT_DELAYED
        metadata = parse_metadata(payload)
    except WireError:
        # It cannot be parsed: it is delivered, so that it can be skipped.
        return NOT_DELAYED, NOT_DELAYED
    if not metadata.HasField("deliver_at_time"):
        return NOT_DELAYED, NOT_DELAYED
    # A client may send a negative time: that is no delay.
    return max(metadata.deliver_at_time, NOT_DELAYED), metadata.publish_time
