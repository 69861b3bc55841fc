"""After how long messages that are not acknowledged expire (time to live). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from geminga_broker.policies.levels import Levels, nearest_limit
from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryConfig:
    """When messages that are not acknowledged expire: subscriptions skip them."""

    ttl_default_s: Annotated[int, Ge(0), Upstream("ttlDurationDefaultInSeconds")] = 0
    """After how many seconds messages expire, where their namespace does not say; 0: never."""
    check_s: Annotated[float, Gt(0), Upstream("messageExpiryCheckIntervalInMinutes", 60)] = 300.0
    """How often the broker checks subscriptions for expired messages."""
    delayed_from_delivery: bool = True
    """Whether the time to live of a delayed message begins with its delivery time; upstream's
    begins with its publish time."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """What holds for a topic."""

    # How long messages live; 0: until they are acknowledged.
    ttl_s: int = 0
    delayed_from_delivery: bool = True


# Of system topics: their messages are records, and never expire.
KEEP_ALL = Expiry()


def expiry(config: ExpiryConfig, levels: Levels) -> Expiry:
    """The expiry policy of a topic."""
    # As upstream, 0 at a nearer level means never, whatever the levels above say.
    ttl_s = nearest_limit(
        levels.topic.message_ttl_s, levels.namespace.message_ttl_s, config.ttl_default_s
    )
    return Expiry(ttl_s, config.delayed_from_delivery)
