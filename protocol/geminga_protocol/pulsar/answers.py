"""Encodes the frames that a broker sends: one function for each type of response or notice.

Required fields are always set, because the official C++ client closes the connection when one is
missing. ``encode_refusal`` answers any request with an error. ``send.py`` writes receipts,
``message.py`` messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, cast

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar import features
from geminga_protocol.pulsar.api_pb2 import BaseCommand, ServerError
from geminga_protocol.pulsar.commands import NO_REQUEST_ID, PART_NAMES, encode_command
from geminga_protocol.pulsar.messages.integers import unsigned


def encode_connected(
    protocol_version: int,
    max_message_bytes: int | None,
    feature_flags: api.FeatureFlags = features.BROKER_FEATURES,
) -> bytes:
    """CONNECTED: the handshake is complete; ``protocol_version`` is the agreed one.

    ``max_message_bytes`` is None from a proxy that serves lookups: it takes no messages.
    """
    # Left out where it is None: the field is optional, and clients then take their own default.
    connected = api.CommandConnected(
        server_version=features.SERVER_VERSION,
        protocol_version=protocol_version,
        max_message_size=max_message_bytes,
        feature_flags=feature_flags,
    )
    return encode_command(BaseCommand(type=BaseCommand.CONNECTED, connected=connected))


def encode_auth_challenge(method: str, data: bytes, protocol_version: int) -> bytes:
    """AUTH_CHALLENGE: the client shall answer ``data`` in the way that ``method`` prescribes.

    ``protocol_version`` is the agreed one.
    """
    challenge = api.CommandAuthChallenge(
        server_version=features.SERVER_VERSION,
        challenge=api.AuthData(auth_method_name=method, auth_data=data),
        protocol_version=protocol_version,
    )
    return encode_command(BaseCommand(type=BaseCommand.AUTH_CHALLENGE, authChallenge=challenge))


def encode_success(request_id: int) -> bytes:
    """SUCCESS: the broker has done what request ``request_id`` asked for."""
    success = api.CommandSuccess(request_id=request_id)
    return encode_command(BaseCommand(type=BaseCommand.SUCCESS, success=success))


def encode_error(request_id: int, error: ServerError.ValueType, message: str) -> bytes:
    """ERROR: request ``request_id`` failed (``NO_REQUEST_ID``: the connection itself)."""
    failed = api.CommandError(request_id=request_id, error=error, message=message)
    return encode_command(BaseCommand(type=BaseCommand.ERROR, error=failed))


def encode_partitions(request_id: int, partitions: int) -> bytes:
    """PARTITIONED_METADATA_RESPONSE: the topic has ``partitions``, 0 if it is not partitioned."""
    response = api.CommandPartitionedTopicMetadataResponse(
        partitions=partitions,
        request_id=request_id,
        response=api.CommandPartitionedTopicMetadataResponse.Success,
    )
    return encode_command(
        BaseCommand(
            type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=response
        )
    )


def encode_lookup(
    request_id: int,
    *,
    broker_url: str | None,
    broker_url_tls: str | None = None,
    is_redirect: bool = False,
    is_authoritative: bool = True,
    is_through_proxy: bool = False,
) -> bytes:
    """LOOKUP_RESPONSE: the broker that owns the topic, or with ``is_redirect`` the broker to ask.

    The client passes ``is_authoritative`` of a redirect on to that broker, which then decides
    itself instead of redirecting again. ``is_through_proxy`` tells a client behind a proxy to keep
    the proxy's address and to name the broker in CONNECT.
    """
    kind = api.CommandLookupTopicResponse
    response = api.CommandLookupTopicResponse(
        brokerServiceUrl=broker_url,
        brokerServiceUrlTls=broker_url_tls,
        response=kind.Redirect if is_redirect else kind.Connect,
        request_id=request_id,
        authoritative=is_authoritative,
        proxy_through_service_url=is_through_proxy,
    )
    return encode_command(
        BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=response)
    )


def encode_producer_success(
    request_id: int,
    producer_name: str,
    *,
    last_sequence_id: int = -1,
    schema_version: bytes = b"",
    topic_epoch: int | None = None,
    is_ready: bool = True,
) -> bytes:
    """PRODUCER_SUCCESS; ``is_ready`` is False while the producer waits for exclusive access.

    ``last_sequence_id`` is that of the last message stored under this producer's name where the
    topic deduplicates, otherwise -1. ``topic_epoch`` numbers the exclusive producers of a topic.
    """
    success = api.CommandProducerSuccess(
        request_id=request_id,
        producer_name=producer_name,
        last_sequence_id=last_sequence_id,
        schema_version=schema_version,
        topic_epoch=topic_epoch,
        producer_ready=is_ready,
    )
    return encode_command(BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=success))


def encode_schema_version(request_id: int, version: bytes) -> bytes:
    """GET_OR_CREATE_SCHEMA_RESPONSE: the schema's version, empty where the topic has none."""
    response = api.CommandGetOrCreateSchemaResponse(request_id=request_id, schema_version=version)
    return encode_command(
        BaseCommand(
            type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=response
        )
    )


def encode_schema(
    request_id: int,
    name: str,
    version: bytes,
    *,
    kind: int,
    definition: bytes,
    properties: Mapping[str, str],
) -> bytes:
    """GET_SCHEMA_RESPONSE: a version of a topic's schema; ``kind`` is its ``SchemaType``."""
    schema = api.Schema(
        name=name,
        type=cast(api.Schema.Type.ValueType, kind),
        schema_data=definition,
        properties=[api.KeyValue(key=key, value=value) for key, value in properties.items()],
    )
    response = api.CommandGetSchemaResponse(
        request_id=request_id, schema=schema, schema_version=version
    )
    return encode_command(
        BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=response)
    )


def encode_send_error(
    producer_id: int, sequence_id: int, error: ServerError.ValueType, message: str
) -> bytes:
    """SEND_ERROR: the broker did not store this message.

    Official clients handle only a checksum error well. For most others they close the whole
    connection or silently drop the message, so brokers close the producer instead.
    """
    failed = api.CommandSendError(
        producer_id=producer_id, sequence_id=sequence_id, error=error, message=message
    )
    return encode_command(BaseCommand(type=BaseCommand.SEND_ERROR, send_error=failed))


def encode_close_producer(
    producer_id: int, *, broker_url: str | None = None, broker_url_tls: str | None = None
) -> bytes:
    """CLOSE_PRODUCER from the broker, with the topic's new owner where it is known."""
    # The client opens the producer again: at the new owner, or wherever a lookup says.
    close = api.CommandCloseProducer(
        producer_id=producer_id,
        request_id=NO_REQUEST_ID,
        assignedBrokerServiceUrl=broker_url,
        assignedBrokerServiceUrlTls=broker_url_tls,
    )
    return encode_command(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close))


def encode_close_consumer(
    consumer_id: int, *, broker_url: str | None = None, broker_url_tls: str | None = None
) -> bytes:
    """CLOSE_CONSUMER from the broker, with the topic's new owner where it is known."""
    close = api.CommandCloseConsumer(
        consumer_id=consumer_id,
        # The field is required, but the broker asks for nothing: clients do not answer this
        # command.
        request_id=NO_REQUEST_ID,
        assignedBrokerServiceUrl=broker_url,
        assignedBrokerServiceUrlTls=broker_url_tls,
    )
    return encode_command(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close))


def encode_ack_response(consumer_id: int, request_id: int) -> bytes:
    """ACK_RESPONSE: the broker has taken the acknowledgements of the request."""
    response = api.CommandAckResponse(consumer_id=consumer_id, request_id=request_id)
    return encode_command(BaseCommand(type=BaseCommand.ACK_RESPONSE, ackResponse=response))


def encode_active_consumer_change(consumer_id: int, *, is_active: bool) -> bytes:
    """ACTIVE_CONSUMER_CHANGE: the consumer became, or is no longer, the active one (Failover)."""
    # Applications may ask to be told (``ConsumerEventListener`` of Java's client).
    change = api.CommandActiveConsumerChange(consumer_id=consumer_id, is_active=is_active)
    return encode_command(
        BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change)
    )


def encode_reached_end_of_topic(consumer_id: int) -> bytes:
    """REACHED_END_OF_TOPIC: the topic is terminated and the consumer has read all of it.

    Send it only where ``features.knows_end_of_topic``: other clients close the connection.
    """
    reached = api.CommandReachedEndOfTopic(consumer_id=consumer_id)
    return encode_command(
        BaseCommand(type=BaseCommand.REACHED_END_OF_TOPIC, reachedEndOfTopic=reached)
    )


def message_id(
    ledger_id: int, entry_id: int, *, partition: int = -1, batch_index: int = -1
) -> api.MessageIdData:
    """A message id for a command; -1 stands for an absent entry, partition or batch index."""
    return api.MessageIdData(
        # The fields are uint64 on the wire, and -1 is what upstream's Java long is there.
        ledgerId=unsigned(ledger_id),
        entryId=unsigned(entry_id),
        partition=partition,
        batch_index=batch_index,
    )


def encode_last_message_id(
    request_id: int,
    last_message_id: api.MessageIdData,
    mark_delete_position: api.MessageIdData | None = None,
) -> bytes:
    """GET_LAST_MESSAGE_ID_RESPONSE; an empty topic's last entry id is -1."""
    response = api.CommandGetLastMessageIdResponse(
        last_message_id=last_message_id,
        request_id=request_id,
        consumer_mark_delete_position=mark_delete_position,
    )
    return encode_command(
        BaseCommand(
            type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=response
        )
    )


def encode_topics_of_namespace(
    request_id: int,
    topics: Iterable[str],
    *,
    topics_hash: str = "",
    is_filtered: bool = False,
    is_changed: bool = True,
) -> bytes:
    """GET_TOPICS_OF_NAMESPACE_RESPONSE: the topics of a namespace.

    With ``is_filtered`` the broker has applied the client's pattern. ``is_changed`` is False where
    the client already has the list with this hash; ``topics`` is then empty.
    """
    response = api.CommandGetTopicsOfNamespaceResponse(
        request_id=request_id,
        topics=topics,
        filtered=is_filtered,
        topics_hash=topics_hash,
        changed=is_changed,
    )
    return encode_command(
        BaseCommand(
            type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=response
        )
    )


def encode_watch_topic_list_success(
    request_id: int, watcher_id: int, topics: Iterable[str], topics_hash: str
) -> bytes:
    """WATCH_TOPIC_LIST_SUCCESS: the topics that exist now; none where the client has the list."""
    success = api.CommandWatchTopicListSuccess(
        request_id=request_id, watcher_id=watcher_id, topic=topics, topics_hash=topics_hash
    )
    return encode_command(
        BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_SUCCESS, watchTopicListSuccess=success)
    )


def encode_watch_topic_update(
    watcher_id: int, added: Iterable[str], removed: Iterable[str], topics_hash: str
) -> bytes:
    """WATCH_TOPIC_UPDATE: topics were created or deleted; ``topics_hash`` is of the new list."""
    update = api.CommandWatchTopicUpdate(
        watcher_id=watcher_id,
        new_topics=added,
        deleted_topics=removed,
        topics_hash=topics_hash,
    )
    return encode_command(BaseCommand(type=BaseCommand.WATCH_TOPIC_UPDATE, watchTopicUpdate=update))


# Refusals: an error in the form that the request's sender expects


class _Request(Protocol):
    """The part of a command that wants an answer."""

    request_id: int


def encode_refusal(
    command: BaseCommand, error: ServerError.ValueType, message: str
) -> bytes | None:
    """Encode the answer that reports a failure of ``command``, in the form its sender expects.

    Most requests get an ERROR, some their own response with an error inside. Returns ``None`` for
    commands that have no answer (FLOW, an ACK without request id, ...).
    """
    command_type = command.type
    part = getattr(command, PART_NAMES[command_type])
    # Before CONNECTED there is no request id: the error is the connection's.
    if command_type == BaseCommand.CONNECT:
        return encode_error(NO_REQUEST_ID, error, message)
    # By producer and sequence id: a SEND has no request id.
    if command_type == BaseCommand.SEND:
        send = command.send
        return encode_send_error(send.producer_id, send.sequence_id, error, message)
    if command_type == BaseCommand.ACK and not command.ack.HasField("request_id"):
        return None
    # FLOW, PONG and the like: the client waits for no answer.
    if "request_id" not in part.DESCRIPTOR.fields_by_name:
        return None
    request_id = cast(_Request, part).request_id
    # A request whose type has its own response gets its failure in it, as upstream's broker
    # answers.
    own_response = _own_response(command, request_id, error, message)
    if own_response is not None:
        return encode_command(own_response)
    return encode_error(request_id, error, message)


def _own_response(
    command: BaseCommand, request_id: int, error: ServerError.ValueType, message: str
) -> BaseCommand | None:
    """The response with an error inside; None where a request of this type gets an ERROR."""
    response_type = _RESPONSE_TYPES.get(command.type)
    if response_type is None:
        return None
    answer = BaseCommand(type=response_type)
    response = getattr(answer, PART_NAMES[response_type])
    response.request_id = request_id
    # The responses agree on the meaning of these fields, but not on their names.
    fields = response.DESCRIPTOR.fields_by_name
    setattr(response, "error" if "error" in fields else "error_code", error)
    setattr(response, "message" if "message" in fields else "error_message", message)
    # Two responses have a further field that says whether they succeeded; its default is a success.
    if command.type == BaseCommand.LOOKUP:
        response.response = api.CommandLookupTopicResponse.Failed
    elif command.type == BaseCommand.PARTITIONED_METADATA:
        response.response = api.CommandPartitionedTopicMetadataResponse.Failed
    elif command.type == BaseCommand.ACK:
        response.consumer_id = command.ack.consumer_id
    return answer


def _response_types() -> dict[BaseCommand.Type.ValueType, BaseCommand.Type.ValueType]:
    """Map the types of requests whose response has a field for an error to the response's type.

    GET_SCHEMA is answered by GET_SCHEMA_RESPONSE, ACK by ACK_RESPONSE: pairs are found by name.
    """
    parts = BaseCommand.DESCRIPTOR.fields_by_number
    types: dict[BaseCommand.Type.ValueType, BaseCommand.Type.ValueType] = {}
    by_name = dict(BaseCommand.Type.items())
    for name, request_type in by_name.items():
        response_type = by_name.get(f"{name.removesuffix('_REQUEST')}_RESPONSE")
        # SUBSCRIBE, UNSUBSCRIBE, CLOSE_PRODUCER and others: their success is SUCCESS, their failure
        # ERROR.
        if response_type is None:
            continue
        response_part = parts[response_type].message_type
        assert response_part is not None
        if {"error", "error_code"} & set(response_part.fields_by_name):
            types[request_type] = response_type
    return types


_RESPONSE_TYPES = _response_types()
