"""Errors about bytes that came from outside.

GemingaError
└── WireError             bytes that do not follow their format
    ├── OversizedFrame    a frame larger than the limit of the connection
    ├── TruncatedFrame    a frame ends before what it announces
    └── ChecksumMismatch  a payload was damaged on its way

``pulsar/errors.py``, ``bookkeeper/errors.py`` and ``records/errors.py`` derive the errors of their
own formats from ``WireError``. ``code`` names the ``ServerError`` that a broker answers with.
"""

from __future__ import annotations

from typing import ClassVar

from geminga_runtime.errors import GemingaError


class WireError(GemingaError):
    """Bytes from a peer break their format; the peer is to blame."""

    code: ClassVar[str] = "UnknownError"


class OversizedFrame(WireError):
    """A frame announces more bytes than the limit, so the stream cannot be read any further."""

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
    """A payload does not have the checksum that came with it.

    ``told`` is the checksum that was sent, ``computed`` that of the bytes that arrived.
    """

    code: ClassVar[str] = "ChecksumError"

    def __init__(self, told: int, computed: int) -> None:
        super().__init__(
            f"checksum {told:#010x} came with bytes whose checksum is {computed:#010x}"
        )
        self.told = told
        self.computed = computed
