"""Refusals of policies.

::

    BrokerError
    ├── InvalidPolicy            a value that no policy can have
    └── ConflictingPolicies      two policies that contradict each other
"""

from __future__ import annotations

from typing import ClassVar

from geminga_broker.errors import BrokerError


class InvalidPolicy(BrokerError):
    """A value that no policy can have."""

    code: ClassVar[str] = "MetadataError"


class ConflictingPolicies(BrokerError):
    """Two policies that contradict each other."""

    code: ClassVar[str] = "MetadataError"
