"""The racks of bookies, by affinity group: operators set them, and placement reads them.

Facts: ``BookiesRackConfiguration`` and ``BookieInfo`` of Apache Pulsar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from geminga_protocol.records.encodings.json_records import JsonRecord, of_document, to_document
from geminga_protocol.records.encodings.json_text import parse_object, render
from geminga_protocol.records.errors import MalformedRecord

RACKS_PATH = "/bookies"
DEFAULT_GROUP = "default"

_RECORD = "bookie racks"


# The node is one JSON object for all bookies of the cluster:
#
#     │ {"default": {"bookie-1:3181": {"rack": "/room/rack-1", "hostname": "bookie-1"}}}
#
# A change of one rack rewrites the whole node.
@dataclass(frozen=True, slots=True, kw_only=True)
class BookieRack(JsonRecord):
    """One bookie's rack, a path such as ``/room/rack``, and its host's name."""

    rack: str | None = None
    hostname: str | None = None


@dataclass(frozen=True, slots=True)
class BookieRacks:
    """The rack of each bookie, by group and then by bookie id."""

    groups: Mapping[str, Mapping[str, BookieRack]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The bytes of the node."""
        return render(
            {
                group: {bookie_id: to_document(rack) for bookie_id, rack in racks.items()}
                for group, racks in self.groups.items()
            }
        )

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read the node. Raises ``MalformedRecord``."""
        return cls(
            {
                group: {
                    bookie_id: of_document(BookieRack, _object_of(rack))
                    for bookie_id, rack in _object_of(racks).items()
                }
                for group, racks in parse_object(value, _RECORD).items()
            }
        )


def _object_of(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise MalformedRecord(_RECORD, f"{value!r} is no object")
    return value
