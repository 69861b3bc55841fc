"""What a supervisor tells the parts that it starts, by environment variables.

Imported before anything slow is: the supervisor itself needs only the variables' names.
"""

from __future__ import annotations

import os

# It may run several parts of one kind; one bookie of several is told apart by this.
PART_NAME_VARIABLE = "GEMINGA_PART_NAME"
# Where it listens (``control``); not set where a part runs on its own.
CONTROL_SOCKET_VARIABLE = "GEMINGA_CONTROL_SOCKET"


def part_name(kind: str) -> str:
    """What this process is called in its log and on the control channel: what its supervisor says,
    or its ``kind``."""
    return os.environ.get(PART_NAME_VARIABLE) or kind
