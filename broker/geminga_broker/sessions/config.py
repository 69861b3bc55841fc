"""The settings of sessions: sizes, intervals, and which features clients are offered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from geminga_protocol.pulsar.frames import FRAME_OVERHEAD_BYTES, MAX_MESSAGE_BYTES_DEFAULT
from geminga_server.config import INTERNAL, Upstream

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """What holds for all sessions of a broker."""

    max_message_bytes: Annotated[int, Ge(1024), Upstream("maxMessageSize")] = (
        MAX_MESSAGE_BYTES_DEFAULT
    )
    """The largest message that is accepted."""
    matches_patterns: Annotated[bool, Upstream("enableBrokerSideSubscriptionPatternEvaluation")] = (
        True
    )
    """Lists of topics are filtered by the clients' patterns."""
    pattern_length_max: Annotated[int, Ge(0), Upstream("subscriptionPatternMaxLength")] = 50
    """The longest such pattern."""
    concurrent_lookup_requests_max: Annotated[
        int, Ge(1), Upstream("maxConcurrentLookupRequest")
    ] = 50_000
    """How many lookups and requests for partitions a broker answers at once; more are refused, and
    clients retry."""
    keepalive_s: Annotated[float, Gt(0), Upstream("keepAliveIntervalSeconds")] = 30.0
    """How often the broker sends a silent client a PING; after two intervals without an
    answer it disconnects the client. Also how long a client may take from its connection to the end
    of its handshake."""
    exposing_broker_entry_metadata_to_client_enabled: Annotated[
        bool, Upstream("exposingBrokerEntryMetadataToClientEnabled")
    ] = False
    """Clients that support it are sent the broker entry metadata of an entry with its messages."""

    # Bytes published on one connection and not yet durable, above which its socket is not read.
    pending_bytes_max: Annotated[int, INTERNAL] = 16 * MIB
    # The same over all connections of the broker. With many connections it is reached first: eight
    # at their own bound fill it.
    publish_buffer_bytes_max: Annotated[int, INTERNAL] = 128 * MIB
    # Commands (lookups, subscribes ...) in progress at once on one connection: a client that sends
    # more without waiting is not read until some are done.
    commands_in_progress_max: Annotated[int, INTERNAL] = 5_000
    # Delivered bytes collected before they go to the transport without waiting for the loop. Well
    # below the high mark of the write buffer, which is checked only for what was written.
    unflushed_bytes_max: Annotated[int, INTERNAL] = MIB
    # Bytes in the transport's write buffer, above which consumers on this connection get no more.
    write_buffer_bytes_high: Annotated[int, INTERNAL] = 4 * MIB

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame a client may send."""
        return self.max_message_bytes + FRAME_OVERHEAD_BYTES
