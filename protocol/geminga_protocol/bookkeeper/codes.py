"""The numbers of BookKeeper's V2 protocol, named as in ``BookieProtocol.java``."""

from __future__ import annotations

from enum import IntEnum

# 5 MiB of message and 10 KiB of everything around it: ``nettyMaxFrameSizeBytes`` in the bookie's
# configuration that Pulsar ships. Larger messages need larger limits on brokers and bookies alike.
FRAME_BYTES_MAX_DEFAULT = 5 * 1024 * 1024 + 10 * 1024


class Operation(IntEnum):
    """What a request asks for; the response repeats it.

    Bookies serve 4 (READ_LAC), 5 (WRITE_LAC) and 6 (GET_BOOKIE_INFO) in V3 only; V2 reserves the
    numbers.
    """

    ADD = 1
    READ = 2
    AUTH = 3
    READ_LAC = 4
    WRITE_LAC = 5
    GET_BOOKIE_INFO = 6
    BATCH_READ = 7


class Flag(IntEnum):
    """Bits that modify a request, to be joined with ``|``. Responses carry none.

    Joined flags are a plain ``int``: with an ``IntFlag`` each ``|`` and ``&`` takes a microsecond.
    """

    NONE = 0
    # A read before which the bookie fences the ledger: from then on it refuses all adds without
    # RECOVERY_ADD.
    FENCING = 1
    # An add by the recovery of a ledger, which a fenced ledger takes.
    RECOVERY_ADD = 2
    # An add that a read-only bookie may still take. Recovery and auto-recovery set it: a cluster of
    # full disks must still be able to close its ledgers, and to move what it has.
    HIGH_PRIORITY = 4


class ReturnCode(IntEnum):
    """How a request ended."""

    # 0 to 2 and 100 to 107 are all there are in V2. An unlisted number becomes ``UnknownRefusal``.
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
