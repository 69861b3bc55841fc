"""What a part is called in its log and on the control channel."""

from __future__ import annotations

import os

# Set by a supervisor, which may run several parts of one kind.
PART_NAME_VARIABLE = "MAGNETAR_PART_NAME"


def part_name(kind: str) -> str:
    """The name its supervisor gave this process; ``kind`` where it has none."""
    return os.environ.get(PART_NAME_VARIABLE) or kind
