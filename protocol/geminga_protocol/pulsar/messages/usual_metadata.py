"""The form in which clients usually write metadata, for code that reads it without protobuf.

The patterns here are pieces of regular expressions over bytes; their users compile them with what
they look for.
"""

from __future__ import annotations

from struct import Struct

# A payload with a checksum whose metadata begins with a producer's name shorter than 128 bytes:
# +--------+----------+---------------+--------------------+------+--------+--------+-------
# | magic  | checksum | metadata size | 0x0a, size of name | name | 0x10   | 0x18   | more
# | 0x0e01 |  u32     |  u32          |  u16               |      | varint | varint | fields
# +--------+----------+---------------+--------------------+------+--------+--------+-------
# The varints are sequence_id=2 and publish_time=3, which takes 6 bytes until the year 2109. Most
# messages have no other fields. Also usual are partition_key=6 (0x32), shorter than 128 bytes, and
# the varints compression=8, uncompressed_size=9, num_messages_in_batch=11, event_time=12 and
# highest_sequence_id=24, in this order.
HEAD = Struct(">HIIH")
METADATA_AT = 10
NAME_AT = 12
assert HEAD.size == NAME_AT
NAME_TAG = 0x0A
# The name's tag and its size, read as one u16: NAME_HEAD + size.
NAME_HEAD = 0x0A00
NAME_HEAD_MAX = 0x0A7F
# A size up to this is a varint of one byte.
ONE_BYTE_SIZE_MAX = 127

# These patterns are loose on purpose: they match some byte sequences that are no valid varint (more
# than 64 bits in ten bytes), but never the beginning of another field, because only the last byte
# of a varint has its highest bit clear. A varint of up to 64 bits.
VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
# A varint of up to 63 bits, hence no negative number.
POSITIVE = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
COMPRESSION = rb"(?:\x40" + VARINT + rb")?"
UNCOMPRESSED_SIZE = rb"(?:\x48" + VARINT + rb")?"
NUM_MESSAGES = rb"(?:\x58(" + POSITIVE + rb"))?"
EVENT_TIME = rb"(?:\x60" + VARINT + rb")?"
HIGHEST_SEQUENCE_ID = rb"(?:\xc0\x01" + VARINT + rb")?"
# What usually follows the key; the group is the number of messages.
END = COMPRESSION + UNCOMPRESSED_SIZE + NUM_MESSAGES + EVENT_TIME + HIGHEST_SEQUENCE_ID

# (magic, checksum, metadata size, name head) of a payload of at least NAME_AT bytes.
read_head = HEAD.unpack_from
