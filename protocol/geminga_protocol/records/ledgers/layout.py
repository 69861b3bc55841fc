"""The node that names the scheme of ledger paths in ZooKeeper.

Pulsar's metadata driver neither writes nor reads it; BookKeeper's own client and shell do not start
without it. Facts: ``LedgerLayout`` and ``HierarchicalLedgerManagerFactory`` of Apache BookKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from geminga_protocol.records.errors import MalformedRecord, UnsupportedRecord
from geminga_protocol.records.ledgers.ledger_metadata import LEDGERS_PATH

LAYOUT_PATH = f"{LEDGERS_PATH}/LAYOUT"
HIERARCHICAL_FACTORY = "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory"
HIERARCHICAL_VERSION = 1

# Of the node itself: "2\nFACTORY:VERSION". Version 1 lacks nothing that is read here.
_FORMAT_VERSION = 2
_FORMAT_VERSIONS = (1, _FORMAT_VERSION)
_RECORD = "ledger layout"


# The node is text of two lines, the format's version and the layout:
#
#     │ 2
#     │ org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1
@dataclass(frozen=True, slots=True)
class LedgerLayout:
    """The class of BookKeeper that knows the paths; the default's are those of ``ledger_path``."""

    factory: str = HIERARCHICAL_FACTORY
    version: int = HIERARCHICAL_VERSION

    def encode(self) -> bytes:
        """The bytes of the node."""
        return f"{_FORMAT_VERSION}\n{self.factory}:{self.version}".encode()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read the node. Raises ``MalformedRecord``, or ``UnsupportedRecord`` if too new."""
        try:
            # Whatever follows the second line is ignored, as upstream does.
            format_version, layout = value.decode().split("\n")[:2]
            factory, version = layout.split(":")
            record = cls(factory, int(version))
            is_known = int(format_version) in _FORMAT_VERSIONS
        except ValueError as error:
            raise MalformedRecord(_RECORD, f"{value[:100]!r}") from error
        if not is_known:
            raise UnsupportedRecord(_RECORD, f"format version {format_version}")
        return record
