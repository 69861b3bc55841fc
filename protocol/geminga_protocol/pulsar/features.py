"""What we say about ourselves in CONNECT and CONNECTED: versions and feature flags."""

from __future__ import annotations

from geminga_protocol.pulsar import api_pb2

# Pulsar 4.x speaks version 21; its published list of names ends with v20.
PROTOCOL_VERSION = 21

# Clients log it and read nothing out of it; the official C++ client wants it to be there.
SERVER_VERSION = "Geminga (Pulsar 4.0)"
CLIENT_VERSION = "Geminga-Python"

# Topic watchers are what the Java client uses when told. Scalable topics stay unset: newer C++
# clients would ask for them in every lookup.
BROKER_FEATURES = api_pb2.FeatureFlags(
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
    supports_repl_dedup_by_lid_and_eid=True,
)

# Of a connection to a proxy that asks for topics. No watchers, as upstream: clients ask again.
PROXY_FEATURES = api_pb2.FeatureFlags(
    supports_get_partitioned_metadata_without_auto_creation=True,
)

CLIENT_FEATURES = api_pb2.FeatureFlags(
    supports_auth_refresh=True,
    supports_broker_entry_metadata=True,
    supports_partial_producer=True,
)

# Of the brokers of one cluster to those of another: receipts tell positions of the source.
REPLICATION_FEATURES = api_pb2.FeatureFlags(supports_repl_dedup_by_lid_and_eid=True)
REPLICATION_FEATURES.MergeFrom(CLIENT_FEATURES)


def agreed_version(peer_version: int) -> int:
    """The protocol version of a connection: the older of the two sides'."""
    return min(peer_version, PROTOCOL_VERSION)


# Since this version clients may know what brokers write in front of messages (PIP-90).
BROKER_ENTRIES_SINCE = 18


def knows_broker_entries(command: api_pb2.CommandConnect) -> bool:
    """Whether a client that said this can be sent what brokers write in front of messages."""
    return (
        command.protocol_version >= BROKER_ENTRIES_SINCE
        and command.feature_flags.supports_broker_entry_metadata
    )


# Since this version clients are told that a topic was terminated and read to its end.
END_OF_TOPIC_SINCE = 9
# Clients that say a newer version and close the connection over REACHED_END_OF_TOPIC all the same:
# again and again, for they subscribe again and are at the end at once. Python and Node have C++'s.
_ENDS_UNKNOWN_TO = ("Pulsar-CPP", "Pulsar-Go")


def knows_end_of_topic(protocol_version: int, client_version: str) -> bool:
    """Whether a client that said this in CONNECT is to be sent REACHED_END_OF_TOPIC."""
    return protocol_version >= END_OF_TOPIC_SINCE and not client_version.startswith(
        _ENDS_UNKNOWN_TO
    )
