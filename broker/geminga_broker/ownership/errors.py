"""What can go wrong with bundles and their owners.

BrokerError
├── InvalidBundles
└── NotOwned
"""

from __future__ import annotations

from typing import ClassVar

from geminga_broker.errors import BrokerError


class InvalidBundles(BrokerError):
    """Boundaries that do not cut the whole hash ring, or too many of them."""

    code: ClassVar[str] = "MetadataError"


class NotOwned(BrokerError):
    """The bundle is another broker's, or nobody's; look it up again."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True

    def __init__(self, bundle: str) -> None:
        super().__init__(f"bundle {bundle} is not owned by this broker")
        self.bundle = bundle
