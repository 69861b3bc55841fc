"""A bookie's cookie: the directories and the cluster that the bookie was formatted with.

The same text is in ZooKeeper and in the file ``VERSION`` of each of the bookie's directories. Where
they differ, a disk is missing or belongs to another bookie, and the bookie must not start: it would
answer "no such entry" for entries that it had acknowledged. Facts: ``Cookie`` of
Apache BookKeeper; the message is ``CookieFormat`` of DataFormats.proto, in protobuf's text form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from geminga_protocol.records.encodings.text_records import parse_text, render_text, text_of_bytes
from geminga_protocol.records.errors import MalformedRecord, UnsupportedRecord
from geminga_protocol.records.ledgers.ledger_metadata import LEDGERS_PATH
from geminga_protocol.records.ledgers_pb2 import CookieFormat

COOKIES_PATH = f"{LEDGERS_PATH}/cookies"
COOKIE_FILE_NAME = "VERSION"
# The version that is written. Version 4 has the same form; older ones are no protobuf text.
LAYOUT_VERSION = 5

_LAYOUT_VERSION_MIN = 4
_LAYOUT_VERSION = re.compile(r"\d{1,9}", re.ASCII)
_RECORD = "cookie"


# The text begins with the version alone in its line, and goes on as protobuf's text form:
#
#     │ 5
#     │ bookieHost: "bookie-1:3181"
#     │ journalDir: "/data/journal"
#     │ ledgerDirs: "2\t/data/a\t/data/b"
#     │ instanceId: "5a0c..."
@dataclass(frozen=True, slots=True, kw_only=True)
class Cookie:
    """What a bookie was formatted with."""

    bookie_id: str
    # Paths as configured, in the order of the configuration.
    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    # Names the cluster, as ``/ledgers/INSTANCEID`` does.
    instance_id: str = ""
    # Empty where the index is in the ledger directories.
    index_dirs: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """The bytes of the node and of the file."""
        message = CookieFormat(
            bookieHost=self.bookie_id,
            # By commas, where the two other lists are counted and separated by tabs.
            journalDir=",".join(self.journal_dirs),
            ledgerDirs=_encode_dirs(self.ledger_dirs),
        )
        # Absent rather than empty, as upstream.
        if self.instance_id:
            message.instanceId = self.instance_id
        if self.index_dirs:
            message.indexDirs = _encode_dirs(self.index_dirs)
        return f"{LAYOUT_VERSION}\n{render_text(message)}".encode()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a node or a file. Raises ``MalformedRecord``, or ``UnsupportedRecord`` if old."""
        version, _, text = text_of_bytes(value, _RECORD).partition("\n")
        if not _LAYOUT_VERSION.fullmatch(version):
            raise MalformedRecord(_RECORD, "no layout version in the first line")
        if int(version) < _LAYOUT_VERSION_MIN:
            raise UnsupportedRecord(_RECORD, f"layout version {version}")
        message = parse_text(CookieFormat, text, _RECORD)
        return cls(
            bookie_id=message.bookieHost,
            journal_dirs=tuple(message.journalDir.split(",")),
            ledger_dirs=_decode_dirs(message.ledgerDirs),
            instance_id=message.instanceId,
            index_dirs=_decode_dirs(message.indexDirs) if message.indexDirs else (),
        )


def cookie_path(bookie_id: str) -> str:
    """The node of a bookie's cookie."""
    return f"{COOKIES_PATH}/{bookie_id}"


def _encode_dirs(dirs: tuple[str, ...]) -> str:
    """The number of directories, then each of them, separated by tabs."""
    return "\t".join((str(len(dirs)), *dirs))


def _decode_dirs(text: str) -> tuple[str, ...]:
    count, *dirs = text.split("\t")
    # A count that does not fit means that a path with a tab in it, or damage, moved the borders.
    if count != str(len(dirs)):
        raise MalformedRecord(_RECORD, f"{len(dirs)} directories, announced as {count!r}")
    return tuple(dirs)
