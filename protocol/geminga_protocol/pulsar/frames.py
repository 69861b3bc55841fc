"""The frame of Pulsar's protocol: its layout, its limits, and the reader that cuts a stream.

``commands.py`` parses the command inside a frame, ``messages/payload.py`` the payload behind it.
"""

from __future__ import annotations

from geminga_protocol.framing import Bounds, FrameReader

# +------------+--------------+-------------+---------+
# | total size | command size | BaseCommand | payload |      total size counts what follows it;
# |  u32       |  u32         |             |         |      only SEND and MESSAGE have a payload,
# +------------+--------------+-------------+---------+      which payload.py draws
COMMAND_SIZE_BYTES = 4

# What command and metadata may take beyond the message itself: a frame may be this much larger than
# the largest message. Upstream's brokers and clients use the same number.
FRAME_OVERHEAD_BYTES = 10 * 1024
# The limit that upstream's broker announces in CONNECTED by default. The official C++ client keeps
# the limit of the last broker that it connected to for the whole process, so the brokers of one
# cluster should announce the same.
MAX_MESSAGE_BYTES_DEFAULT = 5 * 1024 * 1024

__all__ = [
    "COMMAND_SIZE_BYTES",
    "FRAME_OVERHEAD_BYTES",
    "MAX_MESSAGE_BYTES_DEFAULT",
    "Bounds",
    "FrameReader",
]
