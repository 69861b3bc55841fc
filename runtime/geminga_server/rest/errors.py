"""Errors by which handlers refuse a REST call: a status and a reason, which admin tools show.

GemingaError
├── RestError          a handler's own answer
│   └── BodyTooLarge
└── ServedElsewhere    another server answers this; the client is sent there
"""

from __future__ import annotations

from typing import ClassVar

from geminga_runtime.errors import GemingaError


class RestError(GemingaError):
    """Answer with ``status`` and ``{"reason": reason}``."""

    code: ClassVar[str] = "InvalidRequest"

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class BodyTooLarge(RestError):
    """The body is longer than any record may be."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(413, f"The body is longer than {bytes_max} bytes")
        self.bytes_max = bytes_max


class ServedElsewhere(GemingaError):
    """Another server answers this; ``location`` is the same request's URL there."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True

    def __init__(self, location: str) -> None:
        super().__init__(f"another server answers this: ask {location}")
        self.location = location
