"""What we say about ourselves in CONNECT and CONNECTED: versions and feature flags."""

from __future__ import annotations

from magnetar_protocol.pulsar import api_pb2

# Pulsar 4.x speaks version 21; its published list of names ends with v20.
PROTOCOL_VERSION = 21

# Clients log it and read nothing out of it; the official C++ client wants it to be there.
SERVER_VERSION = "Magnetar (Pulsar 4.0)"
CLIENT_VERSION = "Magnetar-Python"

# Topic watchers are what the Java client uses when told. Scalable topics stay unset: newer C++
# clients would ask for them in every lookup.
BROKER_FEATURES = api_pb2.FeatureFlags(
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
)

CLIENT_FEATURES = api_pb2.FeatureFlags(
    supports_auth_refresh=False,
    supports_broker_entry_metadata=True,
    supports_partial_producer=True,
)


def agreed_version(peer_version: int) -> int:
    """The protocol version of a connection: the older of the two sides'."""
    return min(peer_version, PROTOCOL_VERSION)
