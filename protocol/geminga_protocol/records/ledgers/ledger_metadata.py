"""The metadata of a ledger in ZooKeeper: its quorums, its ensembles, its state and its end.

Facts: ``LedgerMetadataSerDe`` and ``StringUtils`` of Apache BookKeeper; the message is
``LedgerMetadataFormat`` of DataFormats.proto. Versions 1 and 2 of the format, which BookKeeper
wrote before 4.9, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Self

from geminga_protocol.pulsar.messages.integers import encode_varint
from geminga_protocol.records.encodings.protobuf_records import parse_message, text_of, texts_of
from geminga_protocol.records.errors import MalformedRecord, UnsupportedRecord
from geminga_protocol.records.ledgers_pb2 import LedgerMetadataFormat

LEDGERS_PATH = "/ledgers"
INSTANCE_ID_PATH = f"{LEDGERS_PATH}/INSTANCEID"
# The id of a new ledger is the number of a sequential node created below one of these. ZooKeeper
# counts such nodes with 32 bits, so the second is used once the first has reached 2**31 - 1.
ID_GENERATOR_PATH = f"{LEDGERS_PATH}/idgen"
LONG_ID_GENERATOR_PATH = f"{LEDGERS_PATH}/idgen-long"

LEDGER_ID_MAX = (1 << 63) - 1
NO_ENTRY = -1

_RECORD = "ledger metadata"

# +--------------------------------+---------+------+--------------+---------+
# | "BookieMetadataFormatVersion"  | version | "\n" | message size | message |
# |   and a tab                    | decimal |      | varint       |         |
# +--------------------------------+---------+------+--------------+---------+
_HEADER = b"BookieMetadataFormatVersion\t"
_VERSION_3 = b"3"
_VERSION_BYTES_MAX = 10
_MESSAGE_SIZE_BYTES_MAX = 5

# Ledgers with ids below this have nodes in a tree of 2-4-4 digits, others in one of 3-4-4-4-4.
_SHORT_ID_LIMIT = (1 << 31) - 1
_SHORT_PATH = re.compile(r"/ledgers/(\d{2})/(\d{4})/L(\d{4})", re.ASCII)
_LONG_PATH = re.compile(r"/ledgers/(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})", re.ASCII)


#     OPEN ──────── its writer closes it ────────▶ CLOSED
#      │                                             ▲
#      └─ a reader recovers it ─▶ IN_RECOVERY ───────┘ the end is found
#
# A change is a compare-and-set on the version of the node. So a writer that was taken over learns
# it at the latest when it closes the ledger, or changes an ensemble.
class LedgerState(IntEnum):
    """The life of a ledger: open to its one writer, in recovery by another, closed for good."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(IntEnum):
    """The digest of a ledger's entries; Pulsar's default is CRC32C."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


@dataclass(frozen=True, slots=True)
class Fragment:
    """The ensemble of the entries from ``first_entry`` on: bookie ids in the order of striping."""

    first_entry: int
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMetadata:
    """The metadata of one ledger."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    #     fragments    0: (a, b, c)    100: (a, d, c)      bookie b was replaced by d at entry 100
    #     entries      0 ... 99        100 ...             copies of 0 to 99 stay where they are
    #
    # In ascending order of their first entries; each ends where the next begins.
    fragments: tuple[Fragment, ...]
    state: LedgerState = LedgerState.OPEN
    # Valid once the ledger is closed: its last entry, and the bytes of all payloads.
    last_entry: int = NO_ENTRY
    length: int = 0
    digest_type: DigestType | None = DigestType.CRC32C
    # The password itself, for recovery by others; requests carry the master key that is derived
    # from it.
    password: bytes | None = b""
    # Unix time, where the writer stored it.
    creation_time_ms: int | None = None
    # The application's own pairs, in the order in which it gave them.
    custom: Mapping[str, bytes] = field(default_factory=dict)
    # A random number of the creator. When the connection breaks during the creation of the node,
    # the creator recognizes by it whether an existing node is its own.
    creation_token: int | None = 0

    def ensemble_of(self, entry_id: int) -> tuple[str, ...]:
        """The ensemble of ``entry_id``: that of the last fragment that begins at or before it."""
        for fragment in reversed(self.fragments):
            if fragment.first_entry <= entry_id:
                return fragment.ensemble
        # Only an open ledger without fragments, or a damaged record, gets here: the first fragment
        # begins at entry 0.
        return ()

    def in_recovery(self) -> Self:
        """The same ledger in recovery."""
        return replace(self, state=LedgerState.IN_RECOVERY)

    def closed(self, last_entry: int, length: int) -> Self:
        """The same ledger closed at ``last_entry`` (-1: empty), with ``length`` payload bytes."""
        return replace(self, state=LedgerState.CLOSED, last_entry=last_entry, length=length)

    def encode(self) -> bytes:
        """The bytes of the ledger's node."""
        message = LedgerMetadataFormat(
            quorumSize=self.write_quorum,
            ensembleSize=self.ensemble_size,
            length=self.length,
            lastEntryId=self.last_entry,
            state=LedgerMetadataFormat.State.ValueType(self.state),
            ackQuorumSize=self.ack_quorum,
            password=self.password,
            ctime=self.creation_time_ms,
            cToken=self.creation_token,
        )
        if self.digest_type is not None:
            message.digestType = LedgerMetadataFormat.DigestType.ValueType(self.digest_type)
        for fragment in self.fragments:
            message.segment.add(firstEntryId=fragment.first_entry, ensembleMember=fragment.ensemble)
        for key, value in self.custom.items():
            message.customMetadata.add(key=key, value=value)
        body = message.SerializeToString()
        return b"".join((_HEADER, _VERSION_3, b"\n", encode_varint(len(body)), body))

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a ledger's node.

        Raises ``MalformedRecord``, and ``UnsupportedRecord`` for another version of the format.
        """
        message = parse_message(LedgerMetadataFormat, _body_of(value), _RECORD)
        return cls(
            ensemble_size=message.ensembleSize,
            write_quorum=message.quorumSize,
            ack_quorum=(
                # Old ledgers have no ack quorum: all copies of an entry together confirm it.
                message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize
            ),
            fragments=tuple(
                Fragment(segment.firstEntryId, texts_of(segment.ensembleMember, _RECORD))
                for segment in message.segment
            ),
            state=LedgerState(message.state),
            last_entry=message.lastEntryId if message.HasField("lastEntryId") else NO_ENTRY,
            length=message.length,
            digest_type=(
                DigestType(message.digestType) if message.HasField("digestType") else None
            ),
            password=message.password if message.HasField("password") else None,
            creation_time_ms=message.ctime if message.HasField("ctime") else None,
            custom={text_of(pair.key, _RECORD): pair.value for pair in message.customMetadata},
            creation_token=message.cToken if message.HasField("cToken") else None,
        )


def ledger_path(ledger_id: int) -> str:
    """The node of a ledger: ``/ledgers/00/0000/L0005`` for ledger 5."""
    assert 0 <= ledger_id <= LEDGER_ID_MAX
    if ledger_id < _SHORT_ID_LIMIT:
        # "0000000005" → 00/0000/L0005
        digits = f"{ledger_id:010d}"
        return f"{LEDGERS_PATH}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    # "0000000002147483648" → 000/0000/0021/4748/L3648
    digits = f"{ledger_id:019d}"
    return (
        f"{LEDGERS_PATH}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"
    )


def ledger_id_of(path: str) -> int | None:
    """The id of the ledger with this node; None for any other path, such as an inner node's."""
    match = _SHORT_PATH.fullmatch(path) or _LONG_PATH.fullmatch(path)
    if match is None:
        return None
    # 19 digits can say more than 63 bits.
    ledger_id = int("".join(match.groups()))
    return ledger_id if ledger_id <= LEDGER_ID_MAX else None


def _body_of(value: bytes) -> bytes:
    """Check what precedes the message, and return the message."""
    if not value.startswith(_HEADER):
        raise MalformedRecord(_RECORD, "the header is not BookKeeper's")
    # The search is bounded: the rest may be any bytes, in which a line end is somewhere.
    version_end = value.find(b"\n", len(_HEADER), len(_HEADER) + _VERSION_BYTES_MAX + 1)
    if version_end < 0:
        raise MalformedRecord(_RECORD, "the version does not end")
    version = value[len(_HEADER) : version_end]
    if version != _VERSION_3:
        raise UnsupportedRecord(_RECORD, f"version {version!r}, where 3 is read")
    # A varint of 32 bits at most.
    size = 0
    size_start = version_end + 1
    for index, byte in enumerate(value[size_start : size_start + _MESSAGE_SIZE_BYTES_MAX]):
        size |= (byte & 0x7F) << 7 * index
        if byte <= 0x7F:
            body_start = size_start + index + 1
            break
    else:
        raise MalformedRecord(_RECORD, "the message's size does not end")
    if len(value) - body_start < size:
        raise MalformedRecord(_RECORD, f"{len(value) - body_start} bytes of {size}")
    # What follows the message is ignored.
    return value[body_start : body_start + size]
