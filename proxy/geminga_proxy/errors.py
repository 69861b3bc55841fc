"""What can go wrong in a proxy.

::

    GemingaError
    ├── NoBroker            the proxy knows no broker now
    ├── NoWorker            none of the worker processes serves clients now
    └── TargetRefused       a client named an address that it may not be connected to

What goes wrong with forwarded requests is in ``geminga_server.errors``.
"""

from __future__ import annotations

from typing import ClassVar

from geminga_runtime.errors import GemingaError


class NoBroker(GemingaError):
    """The proxy knows no broker now; brokers may come back."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True


class NoWorker(GemingaError):
    """None of the worker processes serves clients now; they are being started again."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True


class TargetRefused(GemingaError):
    """A client named an address that it may not be connected to."""

    code: ClassVar[str] = "ServiceNotReady"

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"clients are not connected to {target!r}: {reason}")
        self.target = target
