"""What can go wrong when brokers are administered by REST, or a function is run here.

::

    GemingaError
    ├── BrokerUnreachable   no broker answers at the URL
    ├── AdminRefused        the broker refused; has its reason
    ├── LocalRunFailed      a function on this machine has ended with an error
    └── InvalidUse          options contradict each other, or a value is wrong
"""

from __future__ import annotations

from http import HTTPStatus
from typing import ClassVar

from geminga_cli.display.text import plain_text
from geminga_runtime.errors import GemingaError


class BrokerUnreachable(GemingaError):
    """No HTTP server answers at the URL."""

    code: ClassVar[str] = "BrokerUnreachable"
    retry: ClassVar[bool] = True

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"no broker answers at {url} ({reason}); --admin-url or GEMINGA_ADMIN_URL names another"
        )


class AdminRefused(GemingaError):
    """The broker refused: ``status`` is HTTP's, ``reason`` is the broker's."""

    code: ClassVar[str] = "AdminRefused"

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{reason} (HTTP {status})")
        self.status = status

    @classmethod
    def of(cls, status: int, reason: str) -> AdminRefused:
        """The refusal for this answer; without a reason, it has the phrase of the status.

        A reason may have several lines, and names that clients chose: control characters in them
        are escaped.
        """
        # A proxy in between may answer without a body.
        known = {each.value: each.phrase for each in HTTPStatus}
        plain = "\n".join(map(plain_text, reason.strip().expandtabs(4).split("\n")))
        return cls(status, plain or known.get(status, "The broker refused"))


class LocalRunFailed(GemingaError):
    """A function, source or sink on this machine has ended, and has printed why."""

    code: ClassVar[str] = "LocalRunFailed"


class InvalidUse(GemingaError):
    """Options that contradict each other, or a value that is wrong."""

    code: ClassVar[str] = "InvalidUse"
