"""After how long messages that no consumer acknowledges expire (TTL). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from geminga_broker.policies.levels import Levels, nearest_limit
from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryConfig:
    """When messages that nobody acknowledges are passed over."""

    ttl_default_s: Annotated[int, Ge(0), Upstream("ttlDurationDefaultInSeconds")] = 0
    """After so long, where their namespace does not say; 0: never."""
    check_s: Annotated[float, Gt(0), Upstream("messageExpiryCheckIntervalInMinutes", 60)] = 300.0
    """How often that is looked at."""
    delayed_from_delivery: bool = True
    """Whether the time of a delayed message counts from its delivery time, where it is held back;
    upstream's counts from its publishing."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """What holds for a topic: how long messages live, 0: for ever."""

    ttl_s: int = 0
    delayed_from_delivery: bool = True


KEEP_ALL = Expiry()


def expiry(config: ExpiryConfig, said: Levels) -> Expiry:
    """What holds for a topic of which the levels say this."""
    ttl_s = nearest_limit(
        said.topic.message_ttl_s, said.namespace.message_ttl_s, config.ttl_default_s
    )
    return Expiry(ttl_s, config.delayed_from_delivery)
