"""Sinks: from ``SinkConfig``, the JSON of users, to ``FunctionDetails``, and back.

A sink is stored as a function whose inputs are the sink's, and whose output is the sink's class.
Updates differ from upstream's in two points: upstream ignores changes of retries, and resets the
position of the subscription to Latest if the update does not mention it. Java archives and
transformations before a sink are refused.
"""

from __future__ import annotations

from geminga_functions.definitions.functions import changed_inputs, subscription_type
from geminga_functions.definitions.members import (
    GUARANTEES,
    Config,
    Members,
    MemberType,
    check_acknowledging,
    checked,
    consumer_config,
    consumer_of,
    is_topic,
    set_retries,
)
from geminga_functions.definitions.sources import (
    GUARANTEES_FIXED,
    check_common,
    connector_config,
    connector_details,
    merged,
    set_built_in,
    set_class,
)
from geminga_functions.errors import InvalidDefinition
from geminga_functions.names import FunctionName
from geminga_protocol.functions.functions_pb2 import (
    EARLIEST,
    LATEST,
    ConsumerSpec,
    FunctionDetails,
    SourceSpec,
)

# The members of upstream's SinkConfig.
SINK: Members = {
    "className": MemberType.TEXT,
    "archive": MemberType.TEXT,
    "sinkType": MemberType.TEXT,
    "inputs": MemberType.TEXTS,
    "topicsPattern": MemberType.TEXT,
    "topicToSerdeClassName": MemberType.TEXT_MAP,
    "topicToSchemaType": MemberType.TEXT_MAP,
    "inputSpecs": MemberType.MAPPING,
    "sourceSubscriptionName": MemberType.TEXT,
    "sourceSubscriptionPosition": ("Latest", "Earliest"),
    "cleanupSubscription": MemberType.TRUTH,
    "maxMessageRetries": MemberType.INTEGER,
    "deadLetterTopic": MemberType.TEXT,
    "configs": MemberType.MAPPING,
    "secrets": MemberType.MAPPING,
    "parallelism": MemberType.INTEGER,
    "processingGuarantees": GUARANTEES,
    "retainOrdering": MemberType.TRUTH,
    "retainKeyOrdering": MemberType.TRUTH,
    "resources": MemberType.MAPPING,
    "autoAck": MemberType.TRUTH,
    "timeoutMs": MemberType.LONG,
    "negativeAckRedeliveryDelayMs": MemberType.LONG,
    "logTopic": MemberType.TEXT,
    "runtimeFlags": MemberType.TEXT,
    "customRuntimeOptions": MemberType.TEXT,
    "transformFunction": MemberType.TEXT,
}
# Members that name inputs.
INPUTS = ("inputs", "topicsPattern", "topicToSerdeClassName", "topicToSchemaType", "inputSpecs")
# Members that an update must not change, and upstream's error texts.
FIXED = {
    "sourceSubscriptionName": "Subscription Name cannot be altered",
    "processingGuarantees": GUARANTEES_FIXED,
    "retainOrdering": "Retain Ordering cannot be altered",
    "retainKeyOrdering": "Retain Key Ordering cannot be altered",
    "autoAck": "AutoAck cannot be altered",
}


def sink_details(name: FunctionName, given: Config) -> FunctionDetails:
    """The details of a new sink with this config. Raises ``InvalidDefinition``."""
    config = checked(given, SINK)
    set_built_in(config, "sinkType")
    # After the built-in name has moved to ``archive``: a built-in sink needs no class.
    check_common(config, "Sink")
    _check(config)
    details = connector_details(name, config, FunctionDetails.SINK)
    details.retainOrdering = config.get("retainOrdering", False)
    details.retainKeyOrdering = config.get("retainKeyOrdering", False)
    # With EFFECTIVELY_ONCE it refuses retries.
    set_retries(details, config)
    source = SourceSpec(
        # Inputs of a sink are consumed exactly as those of a function are.
        subscriptionType=subscription_type(config),
        subscriptionName=config.get("sourceSubscriptionName", "").strip(),
        subscriptionPosition=EARLIEST
        if config.get("sourceSubscriptionPosition") == "Earliest"
        else LATEST,
        # Two settings, where functions have one for both.
        timeoutMs=config.get("timeoutMs", 0),
        negativeAckRedeliveryDelayMs=config.get("negativeAckRedeliveryDelayMs", 0),
        cleanupSubscription=config.get("cleanupSubscription", True),
    )
    for topic, spec in inputs_of(config).items():
        source.inputSpecs[topic].CopyFrom(spec)
    details.source.CopyFrom(source)
    # In details, the sink has the class of the user's, and the source its inputs.
    set_class(details.sink, config)
    return details


def _check(config: Config) -> None:
    # 0 is allowed, other than for functions: it means that there is no time-out.
    if config.get("timeoutMs", 0) < 0:
        raise InvalidDefinition("Sink timeout must be a positive number")
    if config.get("negativeAckRedeliveryDelayMs", 0) < 0:
        raise InvalidDefinition("negativeAckRedeliveryDelayMs must not be negative")
    if config.get("transformFunction"):
        raise InvalidDefinition(
            "This functions worker runs no transformations before sinks: leave out "
            "transformFunction, or let a function write the topic that the sink reads"
        )
    check_acknowledging(config)
    is_once = config.get("processingGuarantees") == "EFFECTIVELY_ONCE"
    if is_once and config.get("retainKeyOrdering"):
        raise InvalidDefinition(
            "When effectively once processing guarantee is specified, retain Key ordering "
            "cannot be set"
        )
    # The two orders need different subscriptions: Key_Shared, and Failover.
    if config.get("retainKeyOrdering") and config.get("retainOrdering"):
        raise InvalidDefinition("Only one of retain ordering or retain key ordering can be set")


def inputs_of(config: Config) -> dict[str, ConsumerSpec]:
    """All inputs, which several members of a config can name. Raises ``InvalidDefinition``."""
    inputs = {topic: ConsumerSpec() for topic in config.get("inputs", ())}
    if config.get("topicsPattern"):
        inputs[config["topicsPattern"]] = ConsumerSpec(isRegexPattern=True)
    # Later members override earlier ones for the same topic, as upstream's do.
    for topic, serde in config.get("topicToSerdeClassName", {}).items():
        inputs[topic] = ConsumerSpec(serdeClassName=serde)
    for topic, schema in config.get("topicToSchemaType", {}).items():
        inputs[topic] = ConsumerSpec(schemaType=schema)
    for topic, spec in config.get("inputSpecs", {}).items():
        inputs[topic] = consumer_of(topic, spec)
    for topic, spec in inputs.items():
        if not spec.isRegexPattern and not is_topic(topic):
            raise InvalidDefinition(f"Input topic {topic} is invalid")
    if not inputs:
        raise InvalidDefinition(
            "Must specify at least one topic of input via topicToSerdeClassName, topicsPattern, "
            "topicToSchemaType or inputSpecs"
        )
    return inputs


def sink_config(details: FunctionDetails) -> Config:
    """The config of a sink, from its details.

    All inputs are in ``inputSpecs``, and defaults are filled in.
    """
    source = details.source
    config = connector_config(details, details.sink)
    config |= {
        # Upstream shows the topics twice.
        "inputs": sorted(source.inputSpecs),
        "inputSpecs": {
            topic: consumer_config(spec) for topic, spec in sorted(source.inputSpecs.items())
        },
        "sourceSubscriptionName": source.subscriptionName,
        "sourceSubscriptionPosition": "Earliest"
        if source.subscriptionPosition == EARLIEST
        else "Latest",
        "cleanupSubscription": source.cleanupSubscription,
        "retainOrdering": details.retainOrdering,
        "retainKeyOrdering": details.retainKeyOrdering,
        "autoAck": details.autoAck,  # pyright: ignore[reportDeprecated]  # and still shown
    }
    if source.timeoutMs:
        config["timeoutMs"] = source.timeoutMs
    if source.negativeAckRedeliveryDelayMs:
        config["negativeAckRedeliveryDelayMs"] = source.negativeAckRedeliveryDelayMs
    if details.HasField("retryDetails"):
        config["maxMessageRetries"] = details.retryDetails.maxMessageRetries
        # Perhaps empty, and then left out below.
        config["deadLetterTopic"] = details.retryDetails.deadLetterTopic
    # An empty text is what protobuf has for a field that is not set.
    return {name: value for name, value in config.items() if value != ""}


def updated_sink(existing: Config, given: Config) -> Config:
    """The config of a sink after an update with ``given``; members that are not given stay.

    ``existing`` comes from ``sink_config``. Raises ``InvalidDefinition`` for a member that must not
    change.
    """
    change = checked(given, SINK)
    set_built_in(change, "sinkType")
    # However the update names inputs, they are merged into ``inputSpecs``, where all of them are.
    if any(change.get(member) for member in INPUTS):
        specs = {topic: consumer_config(spec) for topic, spec in inputs_of(change).items()}
        # In ``existing`` the member ``inputs`` has the same topics, which an update cannot alter.
        change = {name: value for name, value in change.items() if name not in INPUTS}
        # The whole map, with the inputs that the update does not mention: ``merged`` replaces it as
        # one member.
        change["inputSpecs"] = changed_inputs(existing["inputSpecs"], specs)
    return merged(existing, change, FIXED)
