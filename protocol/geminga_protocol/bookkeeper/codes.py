"""The numbers of BookKeeper's V2 protocol, named as in ``BookieProtocol.java``."""

from __future__ import annotations

from enum import IntEnum

# 5 MiB of message and 10 KiB around it: nettyMaxFrameSizeBytes as Pulsar configures its bookies.
FRAME_BYTES_MAX_DEFAULT = 5 * 1024 * 1024 + 10 * 1024


class Operation(IntEnum):
    """What a request asks for; the response repeats it.

    Bookies know 4 (READ_LAC), 5 (WRITE_LAC) and 6 (GET_BOOKIE_INFO) in V3 only; the numbers stay
    reserved here.
    """

    ADD = 1
    READ = 2
    AUTH = 3
    READ_LAC = 4
    WRITE_LAC = 5
    GET_BOOKIE_INFO = 6
    BATCH_READ = 7


class Flag(IntEnum):
    """What is special about a request: bits, to be joined with ``|``. Responses carry none.

    Joined they are a plain ``int``: with an ``IntFlag`` each ``|`` and ``&`` takes a microsecond.
    """

    NONE = 0
    FENCING = 1  # a read that closes the ledger to everybody but recovery first
    RECOVERY_ADD = 2  # an add that a fenced ledger takes
    HIGH_PRIORITY = 4  # an add that a read-only bookie may still take


class ReturnCode(IntEnum):
    """How a request ended."""

    EOK = 0
    ENOLEDGER = 1
    ENOENTRY = 2
    EBADREQ = 100
    EIO = 101
    EUA = 102
    EBADVERSION = 103
    EFENCED = 104
    EREADONLY = 105
    ETOOMANYREQUESTS = 106
    EUNKNOWNLEDGERSTATE = 107
