"""How large Pulsar's frames may be, and the reader that cuts a stream into them.

Commands inside the frames are ``commands.py``'s business, stored messages ``payload.py``'s.
"""

from __future__ import annotations

from geminga_protocol.framing import Bounds, FrameReader

# +------------+--------------+-------------+---------+
# | total size | command size | BaseCommand | payload |      total size counts what follows it;
# |  u32       |  u32         |             |         |      the payload, with SEND and MESSAGE
# +------------+--------------+-------------+---------+      only, is drawn in payload.py
COMMAND_SIZE_BYTES = 4

# What a message's metadata and its command may take beyond the message, as upstream.
FRAME_OVERHEAD_BYTES = 10 * 1024
# What upstream's broker tells its clients by default. The official C++ client keeps the limit of
# the last broker it met for the whole process, so brokers of one cluster should agree on it.
MAX_MESSAGE_BYTES_DEFAULT = 5 * 1024 * 1024

__all__ = [
    "COMMAND_SIZE_BYTES",
    "FRAME_OVERHEAD_BYTES",
    "MAX_MESSAGE_BYTES_DEFAULT",
    "Bounds",
    "FrameReader",
]
