"""The records of auto-recovery, all below one path in ZooKeeper.

A mark says that a ledger lacks replicas, a lock that a replication worker is copying it. Votes
elect the auditor, which looks for such ledgers and stores the times of its checks. Operators set
two nodes: one disables auto-recovery, one delays it after the loss of a bookie.

Facts: ``ZkLedgerUnderreplicationManager`` and ``ZkLedgerAuditorManager`` of Apache BookKeeper; the
messages are those of DataFormats.proto. Layout, marks, locks and votes are in protobuf's text form,
the times in its binary form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from geminga_protocol.records.encodings.protobuf_records import parse_message
from geminga_protocol.records.encodings.text_records import parse_text, render_text, text_of_bytes
from geminga_protocol.records.errors import MalformedRecord, UnsupportedRecord
from geminga_protocol.records.ledgers.ledger_metadata import LEDGER_ID_MAX, LEDGERS_PATH
from geminga_protocol.records.ledgers_pb2 import (
    AuditorVoteFormat,
    CheckAllLedgersFormat,
    LedgerRereplicationLayoutFormat,
    LockDataFormat,
    PlacementPolicyCheckFormat,
    ReplicasCheckFormat,
    UnderreplicatedLedgerFormat,
)

#     /ledgers/underreplication
#         LAYOUT
#         ledgers/0000/0000/0000/0005/urL0000000005     a mark: stays until the ledger is repaired
#         locks/urL0000000005                           ephemeral: ends with its worker
#         auditorelection/V_0000000007                  ephemeral, sequential: the lowest one wins
#         disable, lostBookieRecoveryDelay              set by operators
#         checkallledgersctime, ...                     written by the auditor
UNDERREPLICATION_PATH = f"{LEDGERS_PATH}/underreplication"
UNDERREPLICATION_LAYOUT_PATH = f"{UNDERREPLICATION_PATH}/LAYOUT"
# ``ledgers/0000/0000/0000/0005/urL0000000005`` marks ledger 5, ``locks/urL0000000005`` locks it.
MARKS_PATH = f"{UNDERREPLICATION_PATH}/ledgers"
LOCKS_PATH = f"{UNDERREPLICATION_PATH}/locks"
# Each has the time of the last run of its check, whichever auditor ran it.
LAST_CHECK_PATH = f"{UNDERREPLICATION_PATH}/checkallledgersctime"
LAST_PLACEMENT_CHECK_PATH = f"{UNDERREPLICATION_PATH}/placementpolicycheckctime"
LAST_REPLICAS_CHECK_PATH = f"{UNDERREPLICATION_PATH}/replicascheckctime"
# Auto-recovery pauses while this node exists.
DISABLED_PATH = f"{UNDERREPLICATION_PATH}/disable"
# Seconds for which the auditor waits for a lost bookie to come back before it marks its ledgers.
LOST_BOOKIE_DELAY_PATH = f"{UNDERREPLICATION_PATH}/lostBookieRecoveryDelay"
# The bookie with the lowest of the sequential nodes below it is the auditor, and writes its name
# into this node.
VOTES_PATH = f"{UNDERREPLICATION_PATH}/auditorelection"
VOTE_PREFIX = "V_"
# The election of Pulsar's own metadata driver, by one ephemeral node; facts:
# ``PulsarLedgerAuditorManager`` of Apache Pulsar.
LEADER_PATH = f"{UNDERREPLICATION_PATH}/leader"
# Inner nodes between ``MARKS_PATH`` and a mark: one node with millions of children would make every
# listing of it too large for ZooKeeper.
MARK_LEVELS = 4

# The only layout that BookKeeper has defined. A worker that finds another one must not touch the
# marks.
_LAYOUT = LedgerRereplicationLayoutFormat(type="BASIC", version=1)
# How errors name the records.
_MARK = "under-replication mark"
_LAYOUT_RECORD = "under-replication layout"
_LAST_CHECK = "time of the last check"
_LAST_PLACEMENT_CHECK = "time of the last check of placement"
_LAST_REPLICAS_CHECK = "time of the last check of replicas"
_LOCK = "lock of an under-replicated ledger"
_VOTE = "auditor's vote"
_LEADER = "auditor's node"
_DELAY = "lost bookie's grace"

# ZooKeeper appends the sequence number, which is negative after 2**31 votes.
_VOTE_NAME = re.compile(rf"{VOTE_PREFIX}(-?\d{{1,10}})", re.ASCII)
_MARK_NAME = re.compile(r"urL(\d{1,19})", re.ASCII)
# Operators may set the delay by hand.
_DELAY_TEXT = re.compile(rb"\d{1,10}")


# A mark is text, one field a line: the bookies, then the time.
#
#     │ replica: "bookie-2:3181"
#     │ ctime: 1700000000000
@dataclass(frozen=True, slots=True, kw_only=True)
class UnderreplicatedLedger:
    """A mark: the bookies that lost replicas of the ledger, and since when (Unix milliseconds)."""

    missing_bookies: tuple[str, ...]
    marked_at_ms: int | None = None

    def encode(self) -> bytes:
        """The bytes of the mark."""
        message = UnderreplicatedLedgerFormat(replica=self.missing_bookies, ctime=self.marked_at_ms)
        return render_text(message).encode()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a mark. Raises ``MalformedRecord``."""
        message = parse_text(UnderreplicatedLedgerFormat, text_of_bytes(value, _MARK), _MARK)
        return cls(
            missing_bookies=tuple(message.replica),
            marked_at_ms=message.ctime if message.HasField("ctime") else None,
        )


def mark_path(ledger_id: int) -> str:
    """The node of a ledger's mark, below four levels of its id in hexadecimal."""
    assert 0 <= ledger_id <= LEDGER_ID_MAX
    # The levels are hexadecimal, and the id in the name is decimal, as upstream has it.
    digits = f"{ledger_id:016x}"
    levels = "/".join(digits[start : start + 4] for start in range(0, 16, 4))
    return f"{MARKS_PATH}/{levels}/urL{ledger_id:010d}"


def lock_path(ledger_id: int) -> str:
    """The ephemeral node of the worker that copies a ledger."""
    return f"{LOCKS_PATH}/urL{ledger_id:010d}"


def marked_ledger_id(name: str) -> int | None:
    """The ledger of a mark or a lock, by the name of its node; None for any other node."""
    match = _MARK_NAME.fullmatch(name)
    if match is None or int(match[1]) > LEDGER_ID_MAX:
        return None
    return int(match[1])


def encode_lock(holder: str) -> bytes:
    """The bytes of a lock: the worker that copies the ledger, for operators to read."""
    return render_text(LockDataFormat(bookieId=holder)).encode()


def decode_lock(value: bytes) -> str:
    """The holder of a lock, or an empty name. Raises ``MalformedRecord``."""
    return parse_text(LockDataFormat, text_of_bytes(value, _LOCK), _LOCK).bookieId


def encode_vote(bookie_id: str) -> bytes:
    """The bytes of a vote, and of ``VOTES_PATH`` once the voter is the auditor."""
    return render_text(AuditorVoteFormat(bookieId=bookie_id)).encode()


def votes_in_order(names: Iterable[str]) -> list[str]:
    """The votes among ``names``, the lowest first: that of the auditor."""
    # By number and not by text: after 2**31 votes ZooKeeper goes on with negative numbers. Other
    # children than votes are left out, so that a node that an operator put there elects no auditor.
    votes = [(int(match[1]), name) for name in names if (match := _VOTE_NAME.fullmatch(name))]
    return [name for _, name in sorted(votes)]


def decode_vote(value: bytes) -> str:
    """The bookie that wrote a vote. Raises ``MalformedRecord``."""
    return parse_text(AuditorVoteFormat, text_of_bytes(value, _VOTE), _VOTE).bookieId


def encode_leader(bookie_id: str) -> bytes:
    """The bytes of ``LEADER_PATH``: the auditor's name as JSON."""
    return json.dumps(bookie_id).encode()


def decode_leader(value: bytes) -> str:
    """The elected auditor. Raises ``MalformedRecord``."""
    try:
        name: object = json.loads(value)
    except ValueError as error:
        raise MalformedRecord(_LEADER, f"{value[:100]!r} is no JSON") from error
    if not isinstance(name, str):
        raise MalformedRecord(_LEADER, f"{value[:100]!r} is no name")
    return name


def encode_lost_bookie_delay(seconds: int) -> bytes:
    """The bytes of ``LOST_BOOKIE_DELAY_PATH``: a decimal number."""
    return b"%d" % seconds


def decode_lost_bookie_delay(value: bytes) -> int:
    """The delay in seconds. Raises ``MalformedRecord``."""
    if not _DELAY_TEXT.fullmatch(value):
        raise MalformedRecord(_DELAY, f"{value[:100]!r} is no number of seconds")
    return int(value)


def encode_layout() -> bytes:
    """The bytes of the layout node; BookKeeper has defined only this layout."""
    return render_text(_LAYOUT).encode()


def check_layout(value: bytes) -> None:
    """Raise ``UnsupportedRecord`` for another layout, ``MalformedRecord`` for none."""
    text = text_of_bytes(value, _LAYOUT_RECORD)
    layout = parse_text(LedgerRereplicationLayoutFormat, text, _LAYOUT_RECORD)
    if layout != _LAYOUT:
        raise UnsupportedRecord(_LAYOUT_RECORD, f"{layout.type} {layout.version}")


def encode_last_check(checked_at_ms: int) -> bytes:
    """The bytes of ``LAST_CHECK_PATH``: when the auditor last checked all ledgers."""
    return CheckAllLedgersFormat(checkAllLedgersCTime=checked_at_ms).SerializeToString()


def decode_last_check(value: bytes) -> int:
    """Unix milliseconds of the last check, 0 for never. Raises ``MalformedRecord``."""
    return parse_message(CheckAllLedgersFormat, value, _LAST_CHECK).checkAllLedgersCTime


def encode_last_placement_check(checked_at_ms: int) -> bytes:
    """The bytes of ``LAST_PLACEMENT_CHECK_PATH``."""
    return PlacementPolicyCheckFormat(placementPolicyCheckCTime=checked_at_ms).SerializeToString()


def decode_last_placement_check(value: bytes) -> int:
    """Unix milliseconds of that check, 0 for never. Raises ``MalformedRecord``."""
    parsed = parse_message(PlacementPolicyCheckFormat, value, _LAST_PLACEMENT_CHECK)
    return parsed.placementPolicyCheckCTime


def encode_last_replicas_check(checked_at_ms: int) -> bytes:
    """The bytes of ``LAST_REPLICAS_CHECK_PATH``."""
    return ReplicasCheckFormat(replicasCheckCTime=checked_at_ms).SerializeToString()


def decode_last_replicas_check(value: bytes) -> int:
    """Unix milliseconds of that check, 0 for never. Raises ``MalformedRecord``."""
    return parse_message(ReplicasCheckFormat, value, _LAST_REPLICAS_CHECK).replicasCheckCTime
