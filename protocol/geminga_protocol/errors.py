"""What can be wrong with bytes and names that came from outside.

GemingaError
└── WireError             bytes that are not what the format says
    ├── OversizedFrame    a frame larger than we agreed to hold in memory
    ├── TruncatedFrame    a frame ends before what it announces
    └── ChecksumMismatch  a payload was changed on its way

The wire formats' own errors stand below these, in ``pulsar/errors.py`` and
``bookkeeper/errors.py``.
"""

from __future__ import annotations

from typing import ClassVar

from geminga_runtime.errors import GemingaError


class WireError(GemingaError):
    """Bytes from a peer do not have the format they must have; the peer is to blame."""

    code: ClassVar[str] = "UnknownError"


class OversizedFrame(WireError):
    """A frame announces more bytes than the limit; its stream cannot be read any further."""

    code: ClassVar[str] = "NotAllowedError"

    def __init__(self, frame_bytes: int, frame_bytes_max: int) -> None:
        super().__init__(f"a frame of {frame_bytes} bytes, where {frame_bytes_max} are the most")
        self.frame_bytes = frame_bytes
        self.frame_bytes_max = frame_bytes_max


class TruncatedFrame(WireError):
    """A frame ends before a part that it announces."""

    def __init__(self, part: str, wanted_bytes: int, left_bytes: int) -> None:
        super().__init__(f"{part} takes {wanted_bytes} bytes, where {left_bytes} are left")
        self.part = part
        self.wanted_bytes = wanted_bytes
        self.left_bytes = left_bytes


class ChecksumMismatch(WireError):
    """The checksum that came with a payload is not the checksum of the payload that came."""

    code: ClassVar[str] = "ChecksumError"

    def __init__(self, told: int, computed: int) -> None:
        super().__init__(
            f"checksum {told:#010x} came with bytes whose checksum is {computed:#010x}"
        )
        self.told = told
        self.computed = computed
