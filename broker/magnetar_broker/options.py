"""How a broker behaves, independent of how it is told: the core takes this, not settings files."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar_broker.log.entry_cache import (
    AGE_MAX_S_DEFAULT,
    CACHE_BYTES_DEFAULT,
    WANTED_AGE_MAX_S_DEFAULT,
    WATERMARK_DEFAULT,
)
from magnetar_broker.log.options import LogOptions
from magnetar_broker.sessions.context import MAX_MESSAGE_BYTES_DEFAULT
from magnetar_broker.topics.directory import CLOSE_BUDGET_S


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Where the broker is reached, and its limits.

    ``advertised_host`` is what clients are told; it must reach this broker from where they are.
    Both ports were chosen already (not 0): they go into records before anybody listens.
    """

    cluster: str = "standalone"
    bind_host: str = "127.0.0.1"
    advertised_host: str = "127.0.0.1"
    port: int = 6650
    web_port: int = 8080
    # An address this broker had before a restart: its nodes in ZooKeeper are taken over.
    former_broker_ids: tuple[str, ...] = ()
    version: str = "4.0.6"
    log: LogOptions = field(default_factory=LogOptions)
    cache_bytes_max: int = CACHE_BYTES_DEFAULT
    # Where the cache's bound is passed, entries leave until it is filled to this part.
    cache_watermark: float = WATERMARK_DEFAULT
    # Older entries leave the cache even where there is room: those that every subscription was
    # sent, and those that one is still to be sent.
    cache_age_max_s: float = AGE_MAX_S_DEFAULT
    cache_wanted_age_max_s: float = WANTED_AGE_MAX_S_DEFAULT
    max_message_bytes: int = MAX_MESSAGE_BYTES_DEFAULT
    keepalive_s: float = 30.0
    stats_period_s: float = 60.0
    # How long ending may take for topics whose bookies do not answer.
    close_budget_s: float = CLOSE_BUDGET_S
