"""The members of configs and their types, and the parts that functions, sources and sinks share.

A table of members (``Members``) says of each which values it takes. A member that is null or
missing is not set. Members that no table has are ignored, as upstream does, since other versions
may have them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from geminga_functions.errors import InvalidDefinition
from geminga_protocol.functions.functions_pb2 import (
    CompressionType,
    ConsumerSpec,
    CryptoSpec,
    FunctionDetails,
    ProcessingGuarantees,
    ProducerSpec,
    Resources,
)
from geminga_protocol.pulsar.errors import InvalidTopicName
from geminga_protocol.pulsar.topics.topic_names import TopicName

Config = dict[str, Any]

# The resources of an instance, as upstream's defaults. In cores and bytes. Workers enforce the
# limit of memory only; the others are kept for REST.
CPU_DEFAULT = 1.0
RAM_BYTES_DEFAULT = 1024**3
DISK_BYTES_DEFAULT = 10 * 1024**3
# Java's int and long. protobuf's fields have these sizes, too, and raise a ValueError for more.
INTEGER_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1


class MemberType(StrEnum):
    """The types of members, in the words that error texts have for them."""

    TEXT = "a text"
    TRUTH = "true or false"
    NUMBER = "a number"
    INTEGER = "a whole number of 32 bits"
    LONG = "a whole number"
    TEXTS = "a list of texts"
    MAPPING = "an object"
    TEXT_MAP = "an object of texts"


# A type, or the words of which a member has one.
Allowed = MemberType | tuple[str, ...]
Members = Mapping[str, Allowed]


def is_allowed(value: object, allowed: Allowed) -> bool:
    """Whether a member may have this value."""
    # In Python true and false are numbers; in a config they are not.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match allowed, value:
        case MemberType.TEXT, str():
            return True
        case MemberType.TRUTH, bool():
            return True
        case MemberType.NUMBER, _:
            return is_number
        case MemberType.INTEGER, int(number):
            return is_number and -INTEGER_MAX <= number <= INTEGER_MAX
        case MemberType.LONG, int(number):
            return is_number and -LONG_MAX <= number <= LONG_MAX
        case MemberType.TEXTS, list(values):
            return all(isinstance(each, str) for each in values)
        case MemberType.MAPPING, dict():
            return True
        case MemberType.TEXT_MAP, dict(values):
            return all(isinstance(each, str) for each in values.values())
        case tuple(words), str():
            return value in words
        case _:
            return False


# The tables of members: by name, what they may be. Upstream's words are those of its enums.

GUARANTEES = tuple(ProcessingGuarantees.keys())

# The members of upstream's CryptoConfig.
CRYPTO: Members = {
    "cryptoKeyReaderClassName": MemberType.TEXT,
    "cryptoKeyReaderConfig": MemberType.MAPPING,
    "encryptionKeys": MemberType.TEXTS,
    "producerCryptoFailureAction": ("FAIL", "SEND"),
    "consumerCryptoFailureAction": ("FAIL", "DISCARD", "CONSUME"),
}
# The members of upstream's ConsumerConfig, which is that of one input.
CONSUMER: Members = {
    "schemaType": MemberType.TEXT,
    "serdeClassName": MemberType.TEXT,
    "isRegexPattern": MemberType.TRUTH,
    "schemaProperties": MemberType.TEXT_MAP,
    "consumerProperties": MemberType.TEXT_MAP,
    "receiverQueueSize": MemberType.INTEGER,
    "cryptoConfig": MemberType.MAPPING,
    "poolMessages": MemberType.TRUTH,
}
# The members of upstream's ProducerConfig. Instances use those of compression, batching, encryption
# and the number of pending messages; the others are kept for REST.
PRODUCER: Members = {
    "maxPendingMessages": MemberType.INTEGER,
    "maxPendingMessagesAcrossPartitions": MemberType.INTEGER,
    "useThreadLocalProducers": MemberType.TRUTH,
    "cryptoConfig": MemberType.MAPPING,
    "batchBuilder": MemberType.TEXT,
    "compressionType": tuple(CompressionType.keys()),
}
# The members of upstream's Resources.
RESOURCES: Members = {
    "cpu": MemberType.NUMBER,
    "ram": MemberType.LONG,
    "disk": MemberType.LONG,
}


def parse(content: bytes | str) -> Config:
    """Parse the JSON of a config. Raises ``InvalidDefinition``."""
    try:
        value = json.loads(content)
    # Deeply nested brackets reach the interpreter's limit: this is the user's mistake, and no 500.
    except (ValueError, RecursionError) as error:
        raise InvalidDefinition(f"The config is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidDefinition("The config should be a JSON object")
    return value


def checked(config: Config, members: Members, within: str = "") -> Config:
    """The members of ``config`` that are set and known.

    Raises ``InvalidDefinition`` for a value of the wrong type; ``within`` begins its text.
    """
    kept: Config = {}
    # By the table, not by the config: what the table does not have is left out.
    for name, allowed in members.items():
        value = config.get(name)
        if value is None:
            continue
        if not is_allowed(value, allowed):
            is_word = isinstance(allowed, tuple)
            wanted = f"one of {', '.join(allowed)}" if is_word else allowed
            raise InvalidDefinition(f"{within}{name} should be {wanted}, not {json.dumps(value)}")
        # A value that is false or empty is set, and overrides the default.
        kept[name] = value
    return kept


def is_topic(name: str) -> bool:
    """Whether this is a valid name of a topic."""
    try:
        TopicName.parse(name)
    # A short name is valid, too: it stands for a topic in ``public/default``.
    except InvalidTopicName:
        return False
    return True


def check_topic(config: Config, member: str, words: str) -> None:
    """Check the name of a topic, if ``member`` has one. Raises ``InvalidDefinition``."""
    name = config.get(member)
    if name and not is_topic(name):
        raise InvalidDefinition(f"{words} topic {name} is invalid")


def check_acknowledging(config: Config) -> None:
    """Check that messages are not to be acknowledged twice. Raises ``InvalidDefinition``.

    ATMOST_ONCE acknowledges them before the code is called; without ``autoAck`` the code does.
    """
    # The default of ``autoAck`` is true, so only an explicit false clashes.
    is_first = config.get("processingGuarantees") == "ATMOST_ONCE"
    if is_first and not config.get("autoAck", True):
        raise InvalidDefinition("When Guarantees == ATMOST_ONCE, autoAck must be equal to true")


# --- inputs


def consumer_of(topic: str, config: object) -> ConsumerSpec:
    """The options of the consumer of an input. Raises ``InvalidDefinition``."""
    if not isinstance(config, dict):
        raise InvalidDefinition(f"inputSpecs: the config of {topic} should be an object")
    # The name of the member in JSON that upstream's Java objects are serialized to.
    named = {"isRegexPattern": config.get("regexPattern"), **config}
    given = checked(named, CONSUMER, f"inputSpecs of {topic}: ")
    if given.get("schemaType") and given.get("serdeClassName"):
        raise InvalidDefinition(
            "Only one of schemaType or serdeClassName should be set in inputSpec"
        )
    spec = ConsumerSpec(
        schemaType=given.get("schemaType", "").strip(),
        serdeClassName=given.get("serdeClassName", "").strip(),
        isRegexPattern=given.get("isRegexPattern", False),
        schemaProperties=given.get("schemaProperties", {}),
        consumerProperties=given.get("consumerProperties", {}),
        poolMessages=given.get("poolMessages", False),
    )
    # A message of its own in protobuf: 0 differs from a size that is not set.
    if "receiverQueueSize" in given:
        if given["receiverQueueSize"] < 0:
            raise InvalidDefinition("Receiver queue size should be >= zero")
        spec.receiverQueueSize.value = given["receiverQueueSize"]
    if "cryptoConfig" in given:
        spec.cryptoSpec.CopyFrom(crypto_of(given["cryptoConfig"]))
    return spec


def consumer_config(spec: ConsumerSpec) -> Config:
    """The config of an input; ``consumer_of`` makes the same options of it."""
    config: Config = {}
    if spec.schemaType:
        config["schemaType"] = spec.schemaType
    if spec.serdeClassName:
        config["serdeClassName"] = spec.serdeClassName
    # These are shown with their defaults, too, as upstream does.
    config["isRegexPattern"] = spec.isRegexPattern
    config["schemaProperties"] = dict(spec.schemaProperties)
    config["consumerProperties"] = dict(spec.consumerProperties)
    if spec.HasField("receiverQueueSize"):
        config["receiverQueueSize"] = spec.receiverQueueSize.value
    if spec.HasField("cryptoSpec"):
        config["cryptoConfig"] = crypto_config(spec.cryptoSpec)
    config["poolMessages"] = spec.poolMessages
    return config


# --- the producer


def producer_of(config: Config) -> ProducerSpec:
    """The options of the producer of results. Raises ``InvalidDefinition``."""
    given = checked(config, PRODUCER, "producerConfig: ")
    spec = ProducerSpec(
        maxPendingMessages=given.get("maxPendingMessages", 0),
        maxPendingMessagesAcrossPartitions=given.get("maxPendingMessagesAcrossPartitions", 0),
        useThreadLocalProducers=given.get("useThreadLocalProducers", False),
        batchBuilder=given.get("batchBuilder", ""),
        # LZ4 is the default of upstream's functions; a producer of its own has none.
        compressionType=CompressionType.Value(given.get("compressionType", "LZ4")),
    )
    if "cryptoConfig" in given:
        spec.cryptoSpec.CopyFrom(crypto_of(given["cryptoConfig"]))
        # A consumer finds the key by its name in each message; a producer has to be told.
        if not spec.cryptoSpec.producerEncryptionKeyName:
            raise InvalidDefinition("Must provide encryption key name for crypto key reader")
    return spec


def producer_config(spec: ProducerSpec) -> Config:
    """The config of the producer; ``producer_of`` makes the same options of it."""
    config: Config = {}
    # Zero is left out: it stands for the default of the client.
    if spec.maxPendingMessages:
        config["maxPendingMessages"] = spec.maxPendingMessages
    if spec.maxPendingMessagesAcrossPartitions:
        config["maxPendingMessagesAcrossPartitions"] = spec.maxPendingMessagesAcrossPartitions
    config["useThreadLocalProducers"] = spec.useThreadLocalProducers
    if spec.HasField("cryptoSpec"):
        config["cryptoConfig"] = crypto_config(spec.cryptoSpec)
    config["batchBuilder"] = spec.batchBuilder
    config["compressionType"] = CompressionType.Name(spec.compressionType)
    return config


def crypto_of(config: Config) -> CryptoSpec:
    """The keys that messages are encrypted or decrypted with. Raises ``InvalidDefinition``."""
    given = checked(config, CRYPTO, "cryptoConfig: ")
    if not given.get("cryptoKeyReaderClassName", "").strip():
        raise InvalidDefinition("CryptoKeyReader class name required")
    spec = CryptoSpec(
        cryptoKeyReaderClassName=given["cryptoKeyReaderClassName"],
        # JSON within JSON: protobuf has no type for any object.
        cryptoKeyReaderConfig=json.dumps(given.get("cryptoKeyReaderConfig", {})),
        producerEncryptionKeyName=given.get("encryptionKeys", []),
    )
    # Unset, each has the first value of its enum, FAIL.
    if "producerCryptoFailureAction" in given:
        action = CryptoSpec.FailureAction.Value(given["producerCryptoFailureAction"])
        spec.producerCryptoFailureAction = action
    if "consumerCryptoFailureAction" in given:
        action = CryptoSpec.FailureAction.Value(given["consumerCryptoFailureAction"])
        spec.consumerCryptoFailureAction = action
    return spec


def crypto_config(spec: CryptoSpec) -> Config:
    """The config of an encryption; ``crypto_of`` makes the same of it."""
    action = CryptoSpec.FailureAction
    return {
        "cryptoKeyReaderClassName": spec.cryptoKeyReaderClassName,
        "cryptoKeyReaderConfig": json.loads(spec.cryptoKeyReaderConfig or "{}"),
        "encryptionKeys": list(spec.producerEncryptionKeyName),
        "producerCryptoFailureAction": action.Name(spec.producerCryptoFailureAction),
        "consumerCryptoFailureAction": action.Name(spec.consumerCryptoFailureAction),
    }


# --- resources and retries


def resources_of(config: Config) -> Resources:
    """The resources that each instance may use. Raises ``InvalidDefinition``."""
    given = checked(config, RESOURCES, "resources: ")
    # As upstream does: 0, which in details means no limit, cannot be given.
    for name, value in given.items():
        if value <= 0:
            raise InvalidDefinition(f"The {name} allocation for the function must be positive")
    return Resources(
        cpu=given.get("cpu", CPU_DEFAULT),
        ram=given.get("ram", RAM_BYTES_DEFAULT),
        disk=given.get("disk", DISK_BYTES_DEFAULT),
    )


def resources_config(resources: Resources) -> Config:
    """The config of the resources; ``resources_of`` makes the same of it."""
    return {"cpu": resources.cpu, "ram": resources.ram, "disk": resources.disk}


def set_retries(details: FunctionDetails, config: Config) -> None:
    """Set how often a message is redelivered, and its dead letter topic.

    Raises ``InvalidDefinition``.
    """
    retries = config.get("maxMessageRetries")
    # A negative number means no limit.
    if retries is not None and retries >= 0:
        # A message that gives up on its retries would be missing between its neighbours.
        if config.get("processingGuarantees") == "EFFECTIVELY_ONCE":
            raise InvalidDefinition("MaxMessageRetries and Effectively once don't gel well")
        # Also for 0, which is stored, and shown by ``function_config``, unlike retries that are not
        # set.
        details.retryDetails.maxMessageRetries = retries
        details.retryDetails.deadLetterTopic = config.get("deadLetterTopic", "")
    # No message would ever get there.
    elif config.get("deadLetterTopic"):
        raise InvalidDefinition(
            "Dead Letter Topic specified, however max retries is set to infinity"
        )
