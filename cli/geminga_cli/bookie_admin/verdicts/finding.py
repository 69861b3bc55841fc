"""What a dump says of a file, piece by piece: what is there, and what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """Something at ``offset``: in words for people, in ``facts`` for programs.

    ``is_wrong``: it is not what a bookie writes, and no crash explains it.
    """

    offset: int
    kind: str
    words: str
    facts: Mapping[str, object] = field(default_factory=dict[str, object])
    is_wrong: bool = False

    def line(self) -> str:
        """For people."""
        return f"{self.offset:>12}  {'WRONG  ' if self.is_wrong else ''}{self.kind}  {self.words}"

    def record(self, path: str) -> dict[str, object]:
        """For programs."""
        return {
            "file": path,
            "offset": self.offset,
            "kind": self.kind,
            **({"wrong": self.words} if self.is_wrong else {}),
            **self.facts,
        }
