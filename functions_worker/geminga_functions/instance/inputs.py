"""The inputs of an instance: topics and options of consumers, read from the function's metadata.

Payloads are turned into objects by a schema, where the input has one, and by a serde otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import geminga
from geminga_functions.api import IdentitySerDe
from geminga_functions.instance.code_loader import Loader, instantiate
from geminga_functions.instance.encryption import decryption_of
from geminga_functions.instance.record_schemas import AvroRecords, JsonRecords, is_record_class
from geminga_functions.names import InstanceName
from geminga_protocol.functions.functions_pb2 import (
    EFFECTIVELY_ONCE,
    ConsumerSpec,
    FunctionDetails,
)
from geminga_protocol.functions.functions_pb2 import SubscriptionPosition as Position
from geminga_protocol.functions.functions_pb2 import SubscriptionType as Type

# The default of the official client, which upstream's instance leaves: a message that is negatively
# acknowledged is delivered again after a minute.
NACK_DELAY_S = 60.0


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a function, which gets a consumer of its own."""

    # The name of a topic, or a pattern of names.
    topics: str | re.Pattern[str]
    options: geminga.ConsumerOptions
    # Either the consumer decodes payloads with a schema, or a serde's ``deserialize`` does.
    schema: geminga.Schema[Any] | None
    deserialize: Callable[[bytes], Any] | None

    def value(self, message: geminga.Message[Any]) -> Any:  # noqa: ANN401 - any value
        """The object that the function is called with."""
        return message.value if self.deserialize is None else self.deserialize(message.data)


def subscription_of(details: FunctionDetails) -> str:
    """The subscription that all instances of a function share: its full name, if none is chosen."""
    chosen = details.source.subscriptionName.strip()
    return chosen or f"{details.tenant}/{details.namespace}/{details.name}"


def properties_of(name: InstanceName) -> dict[str, str]:
    """The properties of consumers and producers that brokers show in statistics, as upstream's."""
    return {
        "application": "pulsar-function",
        "id": str(name.function),
        "instance_id": str(name.instance),
    }


def inputs_of(loader: Loader, details: FunctionDetails, name: InstanceName) -> list[Input]:
    """The inputs of a function, ordered by topic.

    Raises ``FunctionNotLoaded`` for a serde or schema that cannot be loaded.
    """
    specs = dict(details.source.inputSpecs)
    # Deprecated fields, which older clients and tools still set.
    serdes = details.source.topicsToSerDeClassName  # pyright: ignore[reportDeprecated]  # see above
    for topic, class_name in serdes.items():
        specs.setdefault(topic, ConsumerSpec(serdeClassName=class_name))
    # ``setdefault``, as above: where both name a topic, the newer field says how it is consumed.
    pattern = details.source.topicsPattern  # pyright: ignore[reportDeprecated]  # see above
    if pattern:
        specs.setdefault(pattern, ConsumerSpec(isRegexPattern=True))
    # In the order of topics: every instance subscribes in the same order.
    inputs: list[Input] = []
    for topic in sorted(specs):
        spec = specs[topic]
        schema = schema_of(
            loader, spec.schemaType, details.source.typeClassName, dict(spec.schemaProperties)
        )
        # A schema takes precedence; configs that have both are refused.
        serde = None if schema is not None else serde_of(loader, spec.serdeClassName)
        options = consumer_options(details, spec, name)
        if spec.HasField("cryptoSpec"):
            options.update(decryption_of(loader, spec.cryptoSpec))
        # A pattern that cannot be compiled ends the instance, with the error as its reason.
        topics = re.compile(topic) if spec.isRegexPattern else topic
        inputs.append(Input(topics, options, schema, serde and serde.deserialize))
    return inputs


def consumer_options(
    details: FunctionDetails, spec: ConsumerSpec, name: InstanceName
) -> geminga.ConsumerOptions:
    """The options of the consumer of an input. Pure."""
    source = details.source
    # Clients set the one or the other of the two fields.
    positions = (details.subscriptionPosition, source.subscriptionPosition)
    options: geminga.ConsumerOptions = {
        "type": subscription_type(details),
        "initial_position": "earliest" if Position.EARLIEST in positions else "latest",
        "properties": properties_of(name),
        # Zero is protobuf's default, so it means that none was chosen.
        "nack_delay_s": source.negativeAckRedeliveryDelayMs / 1000 or NACK_DELAY_S,
        # Each message of a batch is acknowledged once its results are stored. Brokers that record
        # acknowledgements within batches do not deliver it again after a restart.
        "batch_index_acks": True,
    }
    # Unset, messages wait for an acknowledgement without a limit, as with upstream's functions.
    if source.timeoutMs:
        options["ack_timeout_s"] = source.timeoutMs / 1000
    if spec.HasField("receiverQueueSize") and spec.receiverQueueSize.value > 0:
        options["receiver_queue_size"] = spec.receiverQueueSize.value
    retry = details.retryDetails
    # With the other types brokers do not count how often they have delivered a message.
    counts_deliveries = options["type"] in ("shared", "key_shared")
    if retry.maxMessageRetries > 0 and counts_deliveries:
        # The topic's default name is the client library's: input, subscription, and ``-DLQ``.
        options["dead_letters"] = geminga.DeadLetterPolicy(
            retry.maxMessageRetries, retry.deadLetterTopic or None
        )
    return options


def subscription_type(details: FunctionDetails) -> geminga.SubscriptionTypeName:
    """The type of the subscription, as upstream chooses it: Failover keeps a partition's order."""
    # Before the type that the user chose: EFFECTIVELY_ONCE relies on one active consumer for each
    # partition.
    if details.retainOrdering or details.processingGuarantees == EFFECTIVELY_ONCE:
        return "failover"
    if details.retainKeyOrdering or details.source.subscriptionType == Type.KEY_SHARED:
        return "key_shared"
    return "failover" if details.source.subscriptionType == Type.FAILOVER else "shared"


def serde_of(loader: Loader, class_name: str) -> Any:  # noqa: ANN401 - duck-typed, the user's
    """An object of a serde class, the default one without a name. Raises ``FunctionNotLoaded``."""
    return instantiate(loader.find(class_name)) if class_name else IdentitySerDe()


def schema_of(
    loader: Loader, kind: str, type_class_name: str, properties: dict[str, str]
) -> geminga.Schema[Any] | None:
    """The schema of an input or of the output; None where a serde converts payloads.

    ``string``, ``json`` and ``avro`` are built in, the latter two with records of the class
    ``type_class_name``; any other ``kind`` is the name of a class of the user's, which is called
    with ``properties`` if there are some. Raises ``FunctionNotLoaded``.
    """
    match kind.lower():
        case "" | "bytes" | "none":
            return None
        case "string":
            return geminga.StringSchema()
        case "json":
            record = loader.find(type_class_name)
            return JsonRecords(record) if is_record_class(record) else geminga.JsonSchema(record)
        case "avro":
            record = loader.find(type_class_name)
            return AvroRecords(record) if is_record_class(record) else geminga.AvroSchema(record)
        case _:
            made: geminga.Schema[Any] = instantiate(
                loader.find(kind), *([properties] if properties else [])
            )
            return made
