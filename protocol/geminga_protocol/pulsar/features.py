"""The versions and feature flags that Geminga announces in CONNECT and CONNECTED."""

from __future__ import annotations

from geminga_protocol.pulsar import api_pb2

# The version of Pulsar 4.x; the enum of versions in PulsarApi.proto ends with v20.
PROTOCOL_VERSION = 21

# Clients only log it, but the official C++ client closes a connection whose CONNECTED lacks it.
SERVER_VERSION = "Geminga (Pulsar 4.0)"
CLIENT_VERSION = "Geminga-Python"

# A Java client uses topic watchers only where the broker announces them. The flag of scalable
# topics stays unset: newer C++ clients would ask for them in every lookup.
BROKER_FEATURES = api_pb2.FeatureFlags(
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
    supports_repl_dedup_by_lid_and_eid=True,
)

# For a connection to a proxy that serves lookups. A proxy does not offer topic watchers, as
# upstream: its clients poll the list of topics instead.
PROXY_FEATURES = api_pb2.FeatureFlags(
    supports_get_partitioned_metadata_without_auto_creation=True,
)

CLIENT_FEATURES = api_pb2.FeatureFlags(
    supports_auth_refresh=True,
    supports_broker_entry_metadata=True,
    supports_partial_producer=True,
)

# For a replicator, a broker's connection to another cluster. With this flag the remote broker's
# receipts carry the position that the message has in the source cluster.
REPLICATION_FEATURES = api_pb2.FeatureFlags(supports_repl_dedup_by_lid_and_eid=True)
REPLICATION_FEATURES.MergeFrom(CLIENT_FEATURES)


def agreed_version(peer_version: int) -> int:
    """The protocol version of a connection: the older of the two sides' versions."""
    return min(peer_version, PROTOCOL_VERSION)


# The first version whose clients may understand broker entry metadata (PIP-90), which brokers write
# in front of messages.
BROKER_ENTRIES_SINCE = 18


def knows_broker_entries(command: api_pb2.CommandConnect) -> bool:
    """Whether the client that sent ``command`` understands broker entry metadata."""
    # Both conditions, as upstream: a client of a newer version may still be unable to skip the
    # broker's metadata; then it leaves the flag unset.
    return (
        command.protocol_version >= BROKER_ENTRIES_SINCE
        and command.feature_flags.supports_broker_entry_metadata
    )


# The first version with REACHED_END_OF_TOPIC: the topic is terminated and the consumer has read it.
END_OF_TOPIC_SINCE = 9
# These clients announce a newer version and still close the connection when that command arrives.
# They then reconnect, subscribe, are at the end of the topic at once, and would do so in an endless
# loop. The Python and Node clients contain the C++ one and announce its name.
_ENDS_UNKNOWN_TO = ("Pulsar-CPP", "Pulsar-Go")


def knows_end_of_topic(protocol_version: int, client_version: str) -> bool:
    """Whether a client with these fields in its CONNECT can be sent REACHED_END_OF_TOPIC."""
    return protocol_version >= END_OF_TOPIC_SINCE and not client_version.startswith(
        _ENDS_UNKNOWN_TO
    )
