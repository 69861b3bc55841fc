"""What can go wrong in a proxy.

::

    GemingaError
    ├── NoBroker            the proxy knows no broker that it could ask
    ├── NoWorker            of the processes that serve clients none does
    └── TargetRefused       a client named a broker that this proxy connects no client to

``geminga_server.errors`` has what goes wrong with requests that are forwarded.
"""

from __future__ import annotations

from typing import ClassVar

from geminga_runtime.errors import GemingaError


class NoBroker(GemingaError):
    """The proxy knows no broker that it could ask; brokers may come back."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True


class NoWorker(GemingaError):
    """Of the processes that serve clients none does; the next ones are on their way."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True


class TargetRefused(GemingaError):
    """A client named a broker that this proxy connects no client to."""

    code: ClassVar[str] = "ServiceNotReady"

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"clients are not connected to {target!r}: {reason}")
        self.target = target
