"""Which topics an instance consumes, and how: from the metadata of its function, and nothing else.

Values are turned into objects by a serde, or by a schema where the input has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import geminga
from geminga_functions.api import IdentitySerDe
from geminga_functions.instance.encryption import decryption_of
from geminga_functions.instance.loading import Loader, instantiate
from geminga_functions.instance.record_schemas import AvroRecords, JsonRecords, is_record_class
from geminga_functions.names import InstanceName
from geminga_protocol.functions.functions_pb2 import (
    EFFECTIVELY_ONCE,
    ConsumerSpec,
    FunctionDetails,
)
from geminga_protocol.functions.functions_pb2 import SubscriptionPosition as Position
from geminga_protocol.functions.functions_pb2 import SubscriptionType as Type

# Upstream's instance leaves the client's default: a refused message comes again after a minute.
NACK_DELAY_S = 60.0


@dataclass(frozen=True, slots=True)
class Input:
    """One input: ``topics`` is a name, or a pattern; ``options`` are those of its consumer."""

    topics: str | re.Pattern[str]
    options: geminga.ConsumerOptions
    schema: geminga.Schema[Any] | None
    deserialize: Callable[[bytes], Any] | None

    def value(self, message: geminga.Message[Any]) -> Any:  # noqa: ANN401 - any value
        """The object that the function is called with."""
        return message.value if self.deserialize is None else self.deserialize(message.data)


def subscription_of(details: FunctionDetails) -> str:
    """The subscription of all instances of a function: its whole name, if none was chosen."""
    chosen = details.source.subscriptionName.strip()
    return chosen or f"{details.tenant}/{details.namespace}/{details.name}"


def properties_of(name: InstanceName) -> dict[str, str]:
    """What brokers show of the consumers and producers of an instance, as upstream's."""
    return {
        "application": "pulsar-function",
        "id": str(name.function),
        "instance_id": str(name.instance),
    }


def inputs_of(loader: Loader, details: FunctionDetails, name: InstanceName) -> list[Input]:
    """The inputs of a function. Raises ``FunctionNotLoaded`` for a serde or schema that is not
    there."""
    specs = dict(details.source.inputSpecs)
    # Deprecated fields: what older clients and tools create has them still.
    serdes = details.source.topicsToSerDeClassName  # pyright: ignore[reportDeprecated]  # see above
    for topic, serde in serdes.items():
        specs.setdefault(topic, ConsumerSpec(serdeClassName=serde))
    pattern = details.source.topicsPattern  # pyright: ignore[reportDeprecated]  # see above
    if pattern:
        specs.setdefault(pattern, ConsumerSpec(isRegexPattern=True))
    return [_input_of(loader, topic, specs[topic], details, name) for topic in sorted(specs)]


def _input_of(
    loader: Loader, topic: str, spec: ConsumerSpec, details: FunctionDetails, name: InstanceName
) -> Input:
    schema = schema_of(
        loader, spec.schemaType, details.source.typeClassName, dict(spec.schemaProperties)
    )
    serde = None if schema is not None else serde_of(loader, spec.serdeClassName)
    options = consumer_options(details, spec, name)
    if spec.HasField("cryptoSpec"):
        options.update(decryption_of(loader, spec.cryptoSpec))
    return Input(
        re.compile(topic) if spec.isRegexPattern else topic,
        options,
        schema,
        serde and serde.deserialize,
    )


def consumer_options(
    details: FunctionDetails, spec: ConsumerSpec, name: InstanceName
) -> geminga.ConsumerOptions:
    """How the consumer of an input subscribes. Pure."""
    source = details.source
    options: geminga.ConsumerOptions = {
        "type": subscription_type(details),
        "initial_position": "earliest" if _begins_first(details) else "latest",
        "properties": properties_of(name),
        "nack_delay_s": source.negativeAckRedeliveryDelayMs / 1000 or NACK_DELAY_S,
        # Messages of a batch are acknowledged as their results are stored: what of a batch is
        # done is not done again after a restart, where the broker keeps it.
        "batch_index_acks": True,
    }
    if source.timeoutMs:
        options["ack_timeout_s"] = source.timeoutMs / 1000
    if spec.HasField("receiverQueueSize") and spec.receiverQueueSize.value > 0:
        options["receiver_queue_size"] = spec.receiverQueueSize.value
    retry = details.retryDetails
    tracks_entries = options["type"] in ("shared", "key_shared")
    if retry.maxMessageRetries > 0 and tracks_entries:
        options["dead_letters"] = geminga.DeadLetterPolicy(
            retry.maxMessageRetries, retry.deadLetterTopic or None
        )
    return options


def subscription_type(details: FunctionDetails) -> geminga.SubscriptionTypeName:
    """Failover where the order of a partition is to be kept, as upstream decides."""
    if details.retainOrdering or details.processingGuarantees == EFFECTIVELY_ONCE:
        return "failover"
    if details.retainKeyOrdering or details.source.subscriptionType == Type.KEY_SHARED:
        return "key_shared"
    return "failover" if details.source.subscriptionType == Type.FAILOVER else "shared"


def _begins_first(details: FunctionDetails) -> bool:
    return Position.EARLIEST in (details.subscriptionPosition, details.source.subscriptionPosition)


def serde_of(loader: Loader, class_name: str) -> Any:  # noqa: ANN401 - duck-typed, the user's
    """A serde; the default one without a name. Raises ``FunctionNotLoaded``."""
    return instantiate(loader.find(class_name)) if class_name else IdentitySerDe()


def schema_of(
    loader: Loader, kind: str, type_class_name: str, properties: dict[str, str]
) -> geminga.Schema[Any] | None:
    """The schema of an input or of the output; None where a serde does it.

    ``string``, ``json`` and ``avro`` are ours, the latter two of the class ``type_class_name``; any
    other word names a class of the user's. Raises ``FunctionNotLoaded``.
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
