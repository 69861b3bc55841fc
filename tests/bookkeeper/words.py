"""What the Java programs print, and the payloads they write."""

from __future__ import annotations


def words_of(output: str) -> dict[str, str]:
    """``name=value`` lines as a dict; other lines are warnings of libraries."""
    pairs = (line.split("=", 1) for line in output.splitlines() if "=" in line)
    return {name: value for name, value in pairs if " " not in name}


def payload(entry_id: int, size: int) -> bytes:
    """What ``LedgerProgram`` writes as this entry."""
    pattern = b"entry %d " % entry_id
    return (pattern * (size // len(pattern) + 1))[:size]
