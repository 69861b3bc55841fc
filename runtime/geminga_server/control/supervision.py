"""The environment variables by which a supervisor configures the parts that it starts.

Imports nothing slow: the supervisor itself needs only the names of the variables.
"""

from __future__ import annotations

import os

# The part's name; there may be several parts of one kind, such as bookies.
PART_NAME_VARIABLE = "GEMINGA_PART_NAME"
# The socket that the supervisor listens on; not set where a part runs on its own.
CONTROL_SOCKET_VARIABLE = "GEMINGA_CONTROL_SOCKET"


def part_name(kind: str) -> str:
    """The name of this process in its log and on the control channel: the one that its supervisor
    gave it, else its ``kind``."""
    return os.environ.get(PART_NAME_VARIABLE) or kind
