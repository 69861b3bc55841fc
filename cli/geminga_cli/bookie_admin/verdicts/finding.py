"""One thing that a dump found in a file: what it is, and whether it is wrong. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """Something at ``offset`` of a file."""

    offset: int
    # Such as "header", "group", "block", "damage".
    kind: str
    # For people.
    words: str
    # The same for programs.
    facts: Mapping[str, object] = field(default_factory=dict[str, object])
    # It is not what a bookie writes, and no crash explains it.
    is_wrong: bool = False

    def line(self) -> str:
        """The finding for people."""
        #           64  block  ledger 5: entries 0-9, 1200 bytes
        #         1328  WRONG  damage  17 bytes are no block
        return f"{self.offset:>12}  {'WRONG  ' if self.is_wrong else ''}{self.kind}  {self.words}"

    def record(self, path: str) -> dict[str, object]:
        """The finding for programs; ``path`` is the file."""
        return {
            "file": path,
            "offset": self.offset,
            "kind": self.kind,
            **({"wrong": self.words} if self.is_wrong else {}),
            **self.facts,
        }
