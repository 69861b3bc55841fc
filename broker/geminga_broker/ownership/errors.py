"""What can go wrong with bundles and their owners.

BrokerError
├── BundleNotSplit
├── InvalidBundles
├── ListenerMissing
├── NotOwned
├── ServedInOtherClusters
└── UnknownSplitAlgorithm
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


class NotOwned(BrokerError):
    """Another broker owns the bundle, or none does: look it up again."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True

    def __init__(self, bundle: str) -> None:
        super().__init__(f"bundle {bundle} is not owned by this broker")
        self.bundle = bundle


class ServedInOtherClusters(BrokerError):
    """The namespace does not name this cluster; ask a cluster that it names."""

    code: ClassVar[str] = "MetadataError"


class BundleNotSplit(BrokerError):
    """The bundle stays as it is; ask again only for another cut."""

    code: ClassVar[str] = "NotAllowedError"

    def __init__(self, bundle: str, why: str) -> None:
        super().__init__(f"Bundle {bundle} cannot be split: {why}")
        self.bundle = bundle


class UnknownSplitAlgorithm(BrokerError):
    """No way of splitting bundles has this name."""

    code: ClassVar[str] = "NotAllowedError"
