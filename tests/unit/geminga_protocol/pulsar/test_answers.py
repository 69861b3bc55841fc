"""Proves that answers are those of a Pulsar broker, and each request is refused in its way."""

from __future__ import annotations

import pytest

from geminga_protocol.pulsar import answers, features
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand, ServerError
from geminga_protocol.pulsar.commands import NO_REQUEST_ID, parse_command


def parse(wire: bytes) -> BaseCommand:
    command, payload_start = parse_command(wire, 4, len(wire))
    assert payload_start == len(wire) == 4 + int.from_bytes(wire[:4], "big")
    return command


def golden(frames: list[bytes], command_type: BaseCommand.Type.ValueType) -> list[BaseCommand]:
    found = [parse(wire) for wire in frames if wire[9] == command_type]
    assert found
    return found


def test_connected_tells_version_limit_and_features() -> None:
    connected = parse(answers.encode_connected(20, 5_242_880)).connected
    assert connected.protocol_version == 20
    assert connected.max_message_size == 5_242_880
    assert connected.server_version == features.SERVER_VERSION
    assert connected.feature_flags == features.BROKER_FEATURES


def test_a_challenge_names_the_method_and_the_agreed_version() -> None:
    challenge = parse(answers.encode_auth_challenge("sasl", b"\0who", 19)).authChallenge
    assert challenge.protocol_version == 19
    assert challenge.server_version
    assert (challenge.challenge.auth_method_name, challenge.challenge.auth_data) == (
        "sasl",
        b"\0who",
    )


def test_answers_are_byte_for_byte_those_of_a_pulsar_broker(golden_frames: list[bytes]) -> None:
    made = set[bytes]()
    for command in golden(golden_frames, BaseCommand.SUCCESS):
        made.add(answers.encode_success(command.success.request_id))
    for command in golden(golden_frames, BaseCommand.PARTITIONED_METADATA_RESPONSE):
        partitions = command.partitionMetadataResponse
        made.add(answers.encode_partitions(partitions.request_id, partitions.partitions))
    for command in golden(golden_frames, BaseCommand.PRODUCER_SUCCESS):
        success = command.producer_success
        made.add(
            answers.encode_producer_success(
                success.request_id,
                success.producer_name,
                last_sequence_id=success.last_sequence_id,
                schema_version=success.schema_version,
            )
        )
    for command in golden(golden_frames, BaseCommand.ACTIVE_CONSUMER_CHANGE):
        change = command.active_consumer_change
        made.add(
            answers.encode_active_consumer_change(change.consumer_id, is_active=change.is_active)
        )
    for command in golden(golden_frames, BaseCommand.LOOKUP_RESPONSE):
        lookup = command.lookupTopicResponse
        has_tls = lookup.HasField("brokerServiceUrlTls")
        made.add(
            answers.encode_lookup(
                lookup.request_id,
                broker_url=lookup.brokerServiceUrl,
                broker_url_tls=lookup.brokerServiceUrlTls if has_tls else None,
            )
        )
    theirs = {
        wire
        for wire in golden_frames
        if wire[9]
        in (
            BaseCommand.SUCCESS,
            BaseCommand.PARTITIONED_METADATA_RESPONSE,
            BaseCommand.PRODUCER_SUCCESS,
            BaseCommand.ACTIVE_CONSUMER_CHANGE,
            BaseCommand.LOOKUP_RESPONSE,
        )
    }
    assert made == theirs


def test_a_redirect_tells_the_next_broker_to_ask() -> None:
    wire = answers.encode_lookup(
        3, broker_url="pulsar://b:6650", is_redirect=True, is_authoritative=False
    )
    lookup = parse(wire).lookupTopicResponse
    assert lookup.response == api.CommandLookupTopicResponse.Redirect
    assert not lookup.authoritative
    assert lookup.brokerServiceUrl == "pulsar://b:6650"


def test_an_error_names_its_request() -> None:
    error = parse(answers.encode_error(5, api.TopicNotFound, "no such topic")).error
    assert (error.request_id, error.error) == (5, api.TopicNotFound)
    assert error.message == "no such topic"


def test_closing_by_the_broker_has_no_request_and_may_name_the_next_broker() -> None:
    producer = parse(answers.encode_close_producer(1)).close_producer
    assert producer.request_id == NO_REQUEST_ID
    assert not producer.HasField("assignedBrokerServiceUrl")
    consumer = parse(answers.encode_close_consumer(2, broker_url="pulsar://b:6650")).close_consumer
    assert consumer.request_id == NO_REQUEST_ID
    assert consumer.assignedBrokerServiceUrl == "pulsar://b:6650"


def test_the_last_message_id_of_an_empty_topic_is_minus_one() -> None:
    wire = answers.encode_last_message_id(4, answers.message_id(7, -1), answers.message_id(7, -1))
    response = parse(wire).getLastMessageIdResponse
    assert response.last_message_id.entryId == 2**64 - 1
    assert response.last_message_id.batch_index == -1
    assert response.consumer_mark_delete_position.ledgerId == 7


def test_the_other_answers_say_what_they_are_given() -> None:
    assert parse(answers.encode_ack_response(1, 2)).ackResponse.request_id == 2
    assert parse(answers.encode_reached_end_of_topic(3)).reachedEndOfTopic.consumer_id == 3
    topics = parse(answers.encode_topics_of_namespace(4, ["a", "b"], topics_hash="h"))
    assert list(topics.getTopicsOfNamespaceResponse.topics) == ["a", "b"]
    error = parse(answers.encode_send_error(1, 2, api.ChecksumError, "bad")).send_error
    assert (error.producer_id, error.sequence_id, error.error) == (1, 2, api.ChecksumError)


REFUSED = api.NotAllowedError


def refusal(command: BaseCommand) -> BaseCommand | None:
    wire = answers.encode_refusal(command, REFUSED, "not yet")
    return None if wire is None else parse(wire)


@pytest.mark.parametrize(
    ("request_type", "part", "response_part"),
    [
        ("LOOKUP", "lookupTopic", "lookupTopicResponse"),
        ("PARTITIONED_METADATA", "partitionMetadata", "partitionMetadataResponse"),
        ("CONSUMER_STATS", "consumerStats", "consumerStatsResponse"),
        ("GET_SCHEMA", "getSchema", "getSchemaResponse"),
        ("GET_OR_CREATE_SCHEMA", "getOrCreateSchema", "getOrCreateSchemaResponse"),
        ("ACK", "ack", "ackResponse"),
        ("NEW_TXN", "newTxn", "newTxnResponse"),
        ("END_TXN", "endTxn", "endTxnResponse"),
        ("TC_CLIENT_CONNECT_REQUEST", "tcClientConnectRequest", "tcClientConnectResponse"),
    ],
)
def test_some_requests_have_their_error_in_their_own_response(
    request_type: str, part: str, response_part: str
) -> None:
    command = BaseCommand(type=BaseCommand.Type.Value(request_type))
    getattr(command, part).request_id = 9
    answer = refusal(command)
    assert answer is not None
    values = {field.name: value for field, value in getattr(answer, response_part).ListFields()}
    assert values["request_id"] == 9
    assert values.get("error", values.get("error_code")) == REFUSED
    assert values.get("message", values.get("error_message")) == "not yet"


def test_a_refused_lookup_says_that_it_failed() -> None:
    lookup = api.CommandLookupTopic(topic="t", request_id=1)
    answer = refusal(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=lookup))
    assert answer is not None
    assert answer.lookupTopicResponse.response == api.CommandLookupTopicResponse.Failed


@pytest.mark.parametrize(
    ("request_type", "part"),
    [
        ("PRODUCER", "producer"),
        ("SUBSCRIBE", "subscribe"),
        ("SEEK", "seek"),
        ("UNSUBSCRIBE", "unsubscribe"),
        ("GET_LAST_MESSAGE_ID", "getLastMessageId"),
        ("GET_TOPICS_OF_NAMESPACE", "getTopicsOfNamespace"),
        ("WATCH_TOPIC_LIST", "watchTopicList"),
    ],
)
def test_other_requests_get_an_error(request_type: str, part: str) -> None:
    command = BaseCommand(type=BaseCommand.Type.Value(request_type))
    getattr(command, part).request_id = 9
    answer = refusal(command)
    assert answer is not None
    assert answer.type == BaseCommand.ERROR
    assert (answer.error.request_id, answer.error.error) == (9, REFUSED)


def test_a_refused_connect_gets_an_error_without_request() -> None:
    connect = api.CommandConnect(client_version="c")
    answer = refusal(BaseCommand(type=BaseCommand.CONNECT, connect=connect))
    assert answer is not None
    assert answer.error.request_id == NO_REQUEST_ID


def test_a_refused_send_gets_a_send_error() -> None:
    send = api.CommandSend(producer_id=1, sequence_id=2)
    answer = refusal(BaseCommand(type=BaseCommand.SEND, send=send))
    assert answer is not None
    assert (answer.send_error.producer_id, answer.send_error.sequence_id) == (1, 2)


@pytest.mark.parametrize(
    "command",
    [
        BaseCommand(type=BaseCommand.FLOW, flow=api.CommandFlow(consumer_id=1, messagePermits=1)),
        BaseCommand(
            type=BaseCommand.ACK,
            ack=api.CommandAck(consumer_id=1, ack_type=api.CommandAck.Individual),
        ),
        BaseCommand(type=BaseCommand.PING, ping=api.CommandPing()),
    ],
)
def test_what_expects_no_answer_gets_none(command: BaseCommand) -> None:
    assert refusal(command) is None


def test_every_type_of_request_can_be_refused() -> None:
    for command_type in BaseCommand.Type.values():
        answer = refusal(BaseCommand(type=command_type))
        assert answer is None or ServerError.Name(REFUSED) in str(answer)
