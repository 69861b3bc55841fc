"""What can go wrong with bundles and their owners.

BrokerError
├── InvalidBundles
├── ListenerMissing
└── NotOwned
"""

from __future__ import annotations

from typing import ClassVar

from geminga_broker.errors import BrokerError


class InvalidBundles(BrokerError):
    """Boundaries that do not cut the whole hash ring, or too many of them."""

    code: ClassVar[str] = "MetadataError"


class ListenerMissing(BrokerError):
    """A client names an advertised listener that the owner of its topic does not have."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True

    def __init__(self, listener: str) -> None:
        super().__init__(f"the broker do not have {listener} listener")  # clients know this text
        self.listener = listener


class NotOwned(BrokerError):
    """The bundle is another broker's, or nobody's; look it up again."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True

    def __init__(self, bundle: str) -> None:
        super().__init__(f"bundle {bundle} is not owned by this broker")
        self.bundle = bundle
