"""What can go wrong in a proxy.

::

    GemingaError
    ├── NoBroker            the proxy knows no broker that it could ask
    ├── NoWorker            of the processes that serve clients none does
    ├── TargetRefused       a client named a broker that this proxy connects no client to
    └── BrokerUnreachable   a broker takes no request, or breaks off
        └── BrokerSilent    it took a request, and says nothing
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


class BrokerUnreachable(GemingaError):
    """A broker takes no request, or breaks off. Where it is not ``is_connected``, it has got
    nothing of the request, which may go to another one."""

    retry: ClassVar[bool] = True

    def __init__(self, message: str, *, is_connected: bool = True) -> None:
        super().__init__(message)
        self.is_connected = is_connected


class BrokerSilent(BrokerUnreachable):
    """A broker took a request, and says nothing."""

    def __init__(self, url: str, timeout_s: float) -> None:
        super().__init__(f"{url} was silent for {timeout_s:g} s")
