"""The marks of auto-recovery: which ledgers lack copies, and when all were last looked at.

Facts: ``ZkLedgerUnderreplicationManager`` of Apache BookKeeper; the messages stand in
DataFormats.proto. Layout and marks are in protobuf's text form, the times in its binary form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from magnetar_protocol.records.errors import UnsupportedRecord
from magnetar_protocol.records.ledger_metadata import LEDGER_ID_MAX, LEDGERS_PATH
from magnetar_protocol.records.ledgers_pb2 import (
    CheckAllLedgersFormat,
    LedgerRereplicationLayoutFormat,
    UnderreplicatedLedgerFormat,
)
from magnetar_protocol.records.protobuf_records import parse_message
from magnetar_protocol.records.text_records import parse_text, render_text, text_of_bytes

UNDERREPLICATION_PATH = f"{LEDGERS_PATH}/underreplication"
UNDERREPLICATION_LAYOUT_PATH = f"{UNDERREPLICATION_PATH}/LAYOUT"
MARKS_PATH = f"{UNDERREPLICATION_PATH}/ledgers"
LOCKS_PATH = f"{UNDERREPLICATION_PATH}/locks"
LAST_CHECK_PATH = f"{UNDERREPLICATION_PATH}/checkallledgersctime"

_LAYOUT = LedgerRereplicationLayoutFormat(type="BASIC", version=1)
_MARK = "under-replication mark"
_LAYOUT_RECORD = "under-replication layout"
_LAST_CHECK = "time of the last check"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderreplicatedLedger:
    """Why a ledger was marked: the bookies that lost it, and since when (Unix milliseconds)."""

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
    """The mark of a ledger, below four levels of its id in hexadecimal."""
    assert 0 <= ledger_id <= LEDGER_ID_MAX
    digits = f"{ledger_id:016x}"
    levels = "/".join(digits[start : start + 4] for start in range(0, 16, 4))
    return f"{MARKS_PATH}/{levels}/urL{ledger_id:010d}"


def lock_path(ledger_id: int) -> str:
    """The ephemeral node of the worker that copies a ledger."""
    return f"{LOCKS_PATH}/urL{ledger_id:010d}"


def encode_layout() -> bytes:
    """The bytes of the layout node: the one layout there is."""
    return render_text(_LAYOUT).encode()


def check_layout(value: bytes) -> None:
    """Raise ``UnsupportedRecord`` for another layout, ``MalformedRecord`` for none."""
    text = text_of_bytes(value, _LAYOUT_RECORD)
    layout = parse_text(LedgerRereplicationLayoutFormat, text, _LAYOUT_RECORD)
    if layout != _LAYOUT:
        raise UnsupportedRecord(_LAYOUT_RECORD, f"{layout.type} {layout.version}")


def encode_last_check(checked_at_ms: int) -> bytes:
    """The bytes of ``LAST_CHECK_PATH``: when the auditor last looked at every ledger."""
    return CheckAllLedgersFormat(checkAllLedgersCTime=checked_at_ms).SerializeToString()


def decode_last_check(value: bytes) -> int:
    """Unix milliseconds of the last check, 0 for never. Raises ``MalformedRecord``."""
    return parse_message(CheckAllLedgersFormat, value, _LAST_CHECK).checkAllLedgersCTime
