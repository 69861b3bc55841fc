"""The commands that no session serves, and how they are refused. Pure.

None of them ends the connection. Pulsar's brokers end it for most of them; but a client that tries
what a broker does not have, or is newer than it, can go on with the rest if it is refused.
"""

from __future__ import annotations

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_error, encode_refusal
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import NO_REQUEST_ID, PART_NAMES
from geminga_protocol.pulsar.errors import IncompleteCommand, UnknownCommand

# Commands that only brokers send. CLOSE_PRODUCER, CLOSE_CONSUMER, PING and PONG go both ways.
BROKERS_OWN = frozenset(
    {
        BaseCommand.CONNECTED,
        BaseCommand.SEND_RECEIPT,
        BaseCommand.SEND_ERROR,
        BaseCommand.MESSAGE,
        BaseCommand.SUCCESS,
        BaseCommand.ERROR,
        BaseCommand.PRODUCER_SUCCESS,
        BaseCommand.PARTITIONED_METADATA_RESPONSE,
        BaseCommand.LOOKUP_RESPONSE,
        BaseCommand.CONSUMER_STATS_RESPONSE,
        BaseCommand.REACHED_END_OF_TOPIC,
        BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE,
        BaseCommand.ACTIVE_CONSUMER_CHANGE,
        BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        BaseCommand.GET_SCHEMA_RESPONSE,
        BaseCommand.AUTH_CHALLENGE,
        BaseCommand.ACK_RESPONSE,
        BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
        BaseCommand.NEW_TXN_RESPONSE,
        BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        BaseCommand.END_TXN_RESPONSE,
        BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
        BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
        BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
        BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
        BaseCommand.WATCH_TOPIC_UPDATE,
        BaseCommand.TOPIC_MIGRATED,
        BaseCommand.SCALABLE_TOPIC_UPDATE,
        BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
        BaseCommand.SCALABLE_TOPIC_ASSIGNMENT_UPDATE,
        BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE,
        BaseCommand.WATCH_TC_ASSIGNMENTS_UPDATE,
    }
)
TRANSACTIONS = frozenset(
    {
        BaseCommand.TC_CLIENT_CONNECT_REQUEST,
        BaseCommand.NEW_TXN,
        BaseCommand.ADD_PARTITION_TO_TXN,
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
        BaseCommand.END_TXN,
        BaseCommand.END_TXN_ON_PARTITION,
        BaseCommand.END_TXN_ON_SUBSCRIPTION,
    }
)
# The commands that a client begins with are refused in an ERROR, as upstream does where
# transactions are disabled: the Go client does not look for an error in their own responses.
FIRST_OF_TRANSACTIONS = frozenset({BaseCommand.TC_CLIENT_CONNECT_REQUEST, BaseCommand.NEW_TXN})
# Commands of Pulsar 5, which CONNECTED does not offer to clients.
NEWER = frozenset(
    {
        BaseCommand.SCALABLE_TOPIC_LOOKUP,
        BaseCommand.SCALABLE_TOPIC_CLOSE,
        BaseCommand.SCALABLE_TOPIC_SUBSCRIBE,
        BaseCommand.WATCH_SCALABLE_TOPICS,
        BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE,
        BaseCommand.WATCH_TC_ASSIGNMENTS,
        BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE,
    }
)


def encode_unserved(command: BaseCommand) -> bytes:
    """The refusal of a command that is not served.

    It is the command's own response if that has room for an error, else an ERROR, without a request
    id where the command has none.
    """
    kind = command.type
    part = PART_NAMES[kind]
    if kind in BROKERS_OWN:
        reason = f"{part} is what brokers say, not clients"
        return encode_error(NO_REQUEST_ID, api.NotAllowedError, reason)
    if kind in FIRST_OF_TRANSACTIONS:
        request_id = getattr(command, part).request_id
        return encode_error(request_id, api.NotAllowedError, "Transactions are not enabled.")
    # Clients treat this code as final. With one that can be retried they would send the command
    # again for ever.
    error = api.NotAllowedError
    if kind in TRANSACTIONS:
        reason = "Transactions are not enabled."
    else:
        reason = f"{part} is not served by this broker"
    return encode_refusal(command, error, reason) or encode_error(NO_REQUEST_ID, error, reason)


def encode_undecoded(error: UnknownCommand | IncompleteCommand) -> bytes | None:
    """The refusal of a command of an unknown type, or without a required field; None where no
    answer is possible, as the command has no type, or does not say which request it is."""
    if isinstance(error, UnknownCommand):
        if error.number is None:
            return None
        # The client may know newer commands: it can go on with those that this broker knows.
        reason = f"{error}: this broker knows those up to {max(PART_NAMES)}"
        return encode_error(NO_REQUEST_ID, api.UnsupportedVersionError, reason)
    command = error.command
    part = getattr(command, PART_NAMES[command.type])
    if command.type in BROKERS_OWN or "request_id" not in part.DESCRIPTOR.fields_by_name:
        return None
    if not part.HasField("request_id"):
        return None
    return encode_refusal(command, api.NotAllowedError, str(error))
