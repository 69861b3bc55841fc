"""What BookKeeper keeps of each ledger in ZooKeeper: quorums, ensembles, and how it ended.

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

from geminga_protocol.records.encodings.protobuf_records import parse_message, text_of, texts_of
from geminga_protocol.records.errors import MalformedRecord, UnsupportedRecord
from geminga_protocol.records.ledgers_pb2 import LedgerMetadataFormat

LEDGERS_PATH = "/ledgers"
INSTANCE_ID_PATH = f"{LEDGERS_PATH}/INSTANCEID"
# A new ledger's id is the number of a sequential node made below one of these: the second once the
# first has counted up to 2**31 - 1.
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

# Ledger ids below this stand in the short tree (2-4-4 digits), others in the long one (3-4-4-4-4).
_SHORT_ID_LIMIT = (1 << 31) - 1
_SHORT_PATH = re.compile(r"/ledgers/(\d{2})/(\d{4})/L(\d{4})", re.ASCII)
_LONG_PATH = re.compile(r"/ledgers/(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})", re.ASCII)


class LedgerState(IntEnum):
    """Whether a ledger can still grow, and who may write to it."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(IntEnum):
    """How a ledger's entries are digested; Pulsar's default is CRC32C."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


@dataclass(frozen=True, slots=True)
class Fragment:
    """Which bookies (by bookie id, in the order of striping) hold the entries from one on."""

    first_entry: int
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMetadata:
    """One ledger. ``last_entry`` and ``length`` (bytes of payload) hold once it is closed.

    ``fragments`` are ordered by first entry. ``custom`` are the application's own pairs; their
    order is kept. ``creation_time_ms`` is Unix time where the writer stored it. ``creation_token``
    is the creator's random mark, by which it knows its own node after a lost connection.
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    fragments: tuple[Fragment, ...]
    state: LedgerState = LedgerState.OPEN
    last_entry: int = NO_ENTRY
    length: int = 0
    digest_type: DigestType | None = DigestType.CRC32C
    password: bytes | None = b""
    creation_time_ms: int | None = None
    custom: Mapping[str, bytes] = field(default_factory=dict)
    creation_token: int | None = 0

    def ensemble_of(self, entry_id: int) -> tuple[str, ...]:
        """The ensemble that holds ``entry_id``: that of the last fragment beginning before it."""
        for fragment in reversed(self.fragments):
            if fragment.first_entry <= entry_id:
                return fragment.ensemble
        return ()

    def in_recovery(self) -> Self:
        """The same ledger, marked as being recovered."""
        return replace(self, state=LedgerState.IN_RECOVERY)

    def closed(self, last_entry: int, length: int) -> Self:
        """The same ledger, ended at ``last_entry`` (-1: empty) with ``length`` payload bytes."""
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
        return b"".join((_HEADER, _VERSION_3, b"\n", _encode_size(len(body)), body))

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
        digits = f"{ledger_id:010d}"
        return f"{LEDGERS_PATH}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return (
        f"{LEDGERS_PATH}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"
    )


def ledger_id_of(path: str) -> int | None:
    """Which ledger's node this is; None for every other path, such as an inner node's."""
    match = _SHORT_PATH.fullmatch(path) or _LONG_PATH.fullmatch(path)
    if match is None:
        return None
    ledger_id = int("".join(match.groups()))
    return ledger_id if ledger_id <= LEDGER_ID_MAX else None


def _body_of(value: bytes) -> bytes:
    """The message without what stands before it."""
    if not value.startswith(_HEADER):
        raise MalformedRecord(_RECORD, "the header is not BookKeeper's")
    version_end = value.find(b"\n", len(_HEADER), len(_HEADER) + _VERSION_BYTES_MAX + 1)
    if version_end < 0:
        raise MalformedRecord(_RECORD, "the version does not end")
    version = value[len(_HEADER) : version_end]
    if version != _VERSION_3:
        raise UnsupportedRecord(_RECORD, f"version {version!r}, where 3 is read")
    size, body_start = _decode_size(value, version_end + 1)
    if len(value) - body_start < size:
        raise MalformedRecord(_RECORD, f"{len(value) - body_start} bytes of {size}")
    return value[body_start : body_start + size]


def _encode_size(size: int) -> bytes:
    """A protobuf varint."""
    encoded = bytearray()
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)


def _decode_size(value: bytes, position: int) -> tuple[int, int]:
    """A protobuf varint of at most 32 bits, and where it ends."""
    size = 0
    for index, byte in enumerate(value[position : position + _MESSAGE_SIZE_BYTES_MAX]):
        size |= (byte & 0x7F) << 7 * index
        if byte <= 0x7F:
            return size, position + index + 1
    raise MalformedRecord(_RECORD, "the message's size does not end")
