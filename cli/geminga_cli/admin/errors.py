"""What can go wrong when brokers are administered by REST.

::

    GemingaError
    ├── BrokerUnreachable   no broker answers at the URL
    ├── AdminRefused        the broker answered, and refused; says its reason
    ├── LocalRunFailed      a function that runs on this machine has ended with an error
    └── InvalidUse          the command line asks for what there cannot be
"""

from __future__ import annotations

from http import HTTPStatus
from typing import ClassVar

from geminga_cli.display.text import plain_text
from geminga_runtime.errors import GemingaError


class BrokerUnreachable(GemingaError):
    """Nothing that speaks HTTP answers there."""

    code: ClassVar[str] = "BrokerUnreachable"
    retry: ClassVar[bool] = True

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"no broker answers at {url} ({reason}); --admin-url or GEMINGA_ADMIN_URL names another"
        )


class AdminRefused(GemingaError):
    """The broker refused: ``status`` is HTTP's, ``reason`` the broker's own words."""

    code: ClassVar[str] = "AdminRefused"

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{reason} (HTTP {status})")
        self.status = status

    @classmethod
    def of(cls, status: int, reason: str) -> AdminRefused:
        """The refusal; a broker that gives no reason is explained by HTTP's words. A reason has
        lines, and names that clients chose: these reach no terminal as control characters."""
        known = {each.value: each.phrase for each in HTTPStatus}
        plain = "\n".join(map(plain_text, reason.strip().expandtabs(4).split("\n")))
        return cls(status, plain or known.get(status, "The broker refused"))


class LocalRunFailed(GemingaError):
    """A function, source or sink on this machine has ended; it has said why."""

    code: ClassVar[str] = "LocalRunFailed"


class InvalidUse(GemingaError):
    """Options that do not go together, or a value that is none."""

    code: ClassVar[str] = "InvalidUse"
