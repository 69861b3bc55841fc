"""Functions: from ``FunctionConfig``, the JSON of users, to ``FunctionDetails``, and back.

Unlike upstream, whose Python instance does not support them, EFFECTIVELY_ONCE and retries are
accepted. Functions in Java and Go are refused, since workers of Geminga cannot run them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from geminga_functions.definitions.members import (
    GUARANTEES,
    Config,
    Members,
    MemberType,
    check_acknowledging,
    check_topic,
    checked,
    consumer_config,
    consumer_of,
    is_topic,
    producer_config,
    producer_of,
    resources_config,
    resources_of,
    set_retries,
)
from geminga_functions.errors import InvalidDefinition
from geminga_functions.names import FunctionName
from geminga_protocol.functions.functions_pb2 import (
    EARLIEST,
    FAILOVER,
    KEY_SHARED,
    LATEST,
    SHARED,
    ConsumerSpec,
    FunctionDetails,
    ProcessingGuarantees,
    SourceSpec,
    SubscriptionType,
)

# The two forms of a function, and the ways between them:
#
#   config (JSON) -- checked, function_details --> FunctionDetails, which workers store
#        ^                                                |
#        +--------------- function_config ---------------+
#
# An update is made in the left form: ``updated_config`` joins what is stored with what is given.
#
# The members of upstream's FunctionConfig.
FUNCTION: Members = {
    "className": MemberType.TEXT,
    "inputs": MemberType.TEXTS,
    "customSerdeInputs": MemberType.TEXT_MAP,
    "topicsPattern": MemberType.TEXT,
    "customSchemaInputs": MemberType.TEXT_MAP,
    "customSchemaOutputs": MemberType.TEXT_MAP,
    "inputSpecs": MemberType.MAPPING,
    "inputTypeClassName": MemberType.TEXT,
    "output": MemberType.TEXT,
    "producerConfig": MemberType.MAPPING,
    "outputSchemaType": MemberType.TEXT,
    "outputTypeClassName": MemberType.TEXT,
    "outputSerdeClassName": MemberType.TEXT,
    "logTopic": MemberType.TEXT,
    "processingGuarantees": GUARANTEES,
    "retainOrdering": MemberType.TRUTH,
    "retainKeyOrdering": MemberType.TRUTH,
    "batchBuilder": MemberType.TEXT,
    "forwardSourceMessageProperty": MemberType.TRUTH,
    "userConfig": MemberType.MAPPING,
    "secrets": MemberType.MAPPING,
    "runtime": ("JAVA", "PYTHON", "GO"),
    "autoAck": MemberType.TRUTH,
    "maxMessageRetries": MemberType.INTEGER,
    "deadLetterTopic": MemberType.TEXT,
    "subName": MemberType.TEXT,
    "parallelism": MemberType.INTEGER,
    "resources": MemberType.MAPPING,
    "windowConfig": MemberType.MAPPING,
    "timeoutMs": MemberType.LONG,
    "jar": MemberType.TEXT,
    "py": MemberType.TEXT,
    "go": MemberType.TEXT,
    "cleanupSubscription": MemberType.TRUTH,
    "runtimeFlags": MemberType.TEXT,
    "customRuntimeOptions": MemberType.TEXT,
    "skipToLatest": MemberType.TRUTH,
    "subscriptionPosition": ("Latest", "Earliest"),
}
# "module.Class", or a module. Nothing else: a name with separators of paths could lead out of the
# package.
CLASS_NAME = re.compile(r"\w+(\.\w+)*")


def function_details(name: FunctionName, given: Config) -> FunctionDetails:
    """The details of a new function with this config. Raises ``InvalidDefinition``."""
    config = checked(given, FUNCTION)
    # From here on every member has its type, and the checks below compare values alone.
    _check(config)
    details = FunctionDetails(
        # The name comes from the path of the request: members of the config that name it are
        # ignored.
        tenant=name.tenant,
        namespace=name.namespace,
        name=name.name,
        className=config["className"],
        runtime=FunctionDetails.PYTHON,
        componentType=FunctionDetails.FUNCTION,
        # Empty: what the function logs goes to the output of its instance alone.
        logTopic=config.get("logTopic", ""),
        processingGuarantees=ProcessingGuarantees.Value(
            config.get("processingGuarantees", "ATLEAST_ONCE")
        ),
        retainOrdering=config.get("retainOrdering", False),
        retainKeyOrdering=config.get("retainKeyOrdering", False),
        userConfig=json.dumps(config["userConfig"]) if config.get("userConfig") else "",
        secretsMap=json.dumps(config["secrets"]) if config.get("secrets") else "",
        # Without it the code acknowledges: instances then treat ATLEAST_ONCE as MANUAL.
        autoAck=config.get("autoAck", True),
        # How many instances there are; they are numbered from 0.
        parallelism=config.get("parallelism", 1),
        resources=resources_of(config.get("resources", {})),
        runtimeFlags=config.get("runtimeFlags", ""),
        customRuntimeOptions=config.get("customRuntimeOptions", ""),
    )
    # With EFFECTIVELY_ONCE it refuses retries.
    set_retries(details, config)
    details.source.CopyFrom(_source_of(config))
    _set_sink(details, config)
    # Such a function would consume its own results without end.
    clash = set(details.source.inputSpecs) & {details.sink.topic}
    if clash:
        raise InvalidDefinition(
            f"Output topic {clash.pop()} is also being used as an input topic "
            "(topics must be one or the other)"
        )
    return details


def _source_of(config: Config) -> SourceSpec:
    source = SourceSpec(
        subscriptionType=subscription_type(config),
        # Empty: instances make one of the full name of the function, so that they share it.
        subscriptionName=config.get("subName", "").strip(),
        subscriptionPosition=EARLIEST
        if config.get("subscriptionPosition") == "Earliest"
        else LATEST,
        skipToLatest=config.get("skipToLatest", False),
        typeClassName=config.get("inputTypeClassName", ""),
        # Upstream uses the one setting for both: an unacknowledged message and a refused one.
        timeoutMs=config.get("timeoutMs", 0),
        negativeAckRedeliveryDelayMs=config.get("timeoutMs", 0),
        cleanupSubscription=config.get("cleanupSubscription", True),
    )
    for topic, spec in inputs_of(config).items():
        source.inputSpecs[topic].CopyFrom(spec)
    return source


def inputs_of(config: Config) -> dict[str, ConsumerSpec]:
    """All inputs, which several members of a config can name. Raises ``InvalidDefinition``."""
    # Later members override earlier ones for the same topic, as upstream's do.
    inputs = {topic: ConsumerSpec() for topic in config.get("inputs", ())}
    # A pattern is one input, whose consumer follows the topics that match it.
    if config.get("topicsPattern"):
        inputs[config["topicsPattern"]] = ConsumerSpec(isRegexPattern=True)
    for topic, serde in config.get("customSerdeInputs", {}).items():
        inputs[topic] = ConsumerSpec(serdeClassName=serde)
    for topic, schema in config.get("customSchemaInputs", {}).items():
        inputs[topic] = ConsumerSpec(**_schema(schema, f"inputs,Topic {topic}"))
    for topic, spec in config.get("inputSpecs", {}).items():
        inputs[topic] = consumer_of(topic, spec)
    for topic, spec in inputs.items():
        if not spec.isRegexPattern and not is_topic(topic):
            raise InvalidDefinition(f"Input topic {topic} is invalid")
    # A function without inputs would never be called; what produces by itself is a source.
    if not inputs:
        raise InvalidDefinition("No input topic(s) specified for the function")
    return inputs


def _schema(described: str, where: str) -> dict[str, Any]:
    """The fields of a schema whose description is a consumer's config, as JSON text."""
    # Upstream serializes a ConsumerConfig into the text, and uses only its parts about schemas.
    try:
        value = json.loads(described)
        spec = consumer_of("", value)
    except (ValueError, InvalidDefinition):
        raise InvalidDefinition(f"Incorrect custom schema {where}") from None
    return {
        "schemaType": spec.schemaType,
        "schemaProperties": dict(spec.schemaProperties),
        "consumerProperties": dict(spec.consumerProperties),
    }


def subscription_type(config: Config) -> SubscriptionType.ValueType:
    """The type of the subscription; Failover, with one consumer at a time, keeps the order."""
    if config.get("retainOrdering") or config.get("processingGuarantees") == "EFFECTIVELY_ONCE":
        return FAILOVER
    return KEY_SHARED if config.get("retainKeyOrdering") else SHARED


def _set_sink(details: FunctionDetails, config: Config) -> None:
    sink = details.sink
    sink.topic = config.get("output", "")
    sink.serDeClassName = config.get("outputSerdeClassName", "").strip()
    sink.schemaType = config.get("outputSchemaType", "").strip()
    sink.typeClassName = config.get("outputTypeClassName", "")
    sink.forwardSourceMessageProperty = config.get("forwardSourceMessageProperty", True)
    # Upstream's table has schemas of any topic; only that of the output counts.
    described = config.get("customSchemaOutputs", {}).get(sink.topic)
    if described:
        schema = _schema(described, f"outputs,Topic {sink.topic}")
        sink.schemaProperties.update(schema["schemaProperties"])
        sink.consumerProperties.update(schema["consumerProperties"])
    if "producerConfig" in config:
        sink.producerSpec.CopyFrom(producer_of(config["producerConfig"]))
    if "batchBuilder" in config:
        sink.producerSpec.batchBuilder = config["batchBuilder"]


def _check(config: Config) -> None:
    """Check all members except inputs. Raises ``InvalidDefinition``."""
    if config.get("runtime", "PYTHON") != "PYTHON" or config.get("jar") or config.get("go"):
        raise InvalidDefinition(
            "This functions worker runs functions in Python only: give a package (.py, .zip or "
            ".whl) and the name of its class or function"
        )
    if not config.get("className"):
        raise InvalidDefinition("Function classname cannot be null")
    # Before anything is stored: instances import whatever this names.
    if not CLASS_NAME.fullmatch(config["className"]):
        raise InvalidDefinition(f"{config['className']!r} is no name of a class or function")
    check_topic(config, "output", "Output")
    check_topic(config, "logTopic", "LogTopic")
    check_topic(config, "deadLetterTopic", "DeadLetter")
    check_acknowledging(config)
    guarantees = config.get("processingGuarantees")
    if config.get("parallelism", 1) <= 0:
        raise InvalidDefinition("Function parallelism must be a positive number")
    if "windowConfig" in config:
        raise InvalidDefinition("There is currently no support windowing in python")
    if config.get("timeoutMs", 1) <= 0:
        raise InvalidDefinition("Function timeout must be a positive number")
    if "timeoutMs" in config and guarantees not in {None, "ATLEAST_ONCE"}:
        raise InvalidDefinition(
            "Message timeout can only be specified with processing guarantee is ATLEAST_ONCE"
        )
    # The two orders need different subscriptions: Key_Shared, and Failover.
    if config.get("retainKeyOrdering") and guarantees == "EFFECTIVELY_ONCE":
        raise InvalidDefinition(
            "When effectively once processing guarantee is specified, retain Key ordering "
            "cannot be set"
        )
    if config.get("retainKeyOrdering") and config.get("retainOrdering"):
        raise InvalidDefinition("Only one of retain ordering or retain key ordering can be set")
    # Both would encode a result, and the second could not read what the first has made.
    if config.get("outputSchemaType") and config.get("outputSerdeClassName"):
        raise InvalidDefinition(
            "Only one of outputSchemaType or outputSerdeClassName should be set"
        )


def function_config(details: FunctionDetails) -> Config:
    """The config of a function, from its details.

    All inputs are in ``inputSpecs``, and defaults are filled in.
    """
    source, sink = details.source, details.sink
    config: Config = {
        "tenant": details.tenant,
        "namespace": details.namespace,
        "name": details.name,
        "className": details.className,
        # Sorted, since the order of a map of protobuf is none: equal details give equal texts.
        "inputSpecs": {
            topic: consumer_config(spec) for topic, spec in sorted(source.inputSpecs.items())
        },
        "output": sink.topic,
        "producerConfig": producer_config(sink.producerSpec),
        "outputSchemaType": sink.schemaType,
        "outputSerdeClassName": sink.serDeClassName,
        "logTopic": details.logTopic,
        "processingGuarantees": ProcessingGuarantees.Name(details.processingGuarantees),
        "retainOrdering": details.retainOrdering,
        "retainKeyOrdering": details.retainKeyOrdering,
        "userConfig": json.loads(details.userConfig or "{}"),
        "runtime": FunctionDetails.Runtime.Name(details.runtime),
        "autoAck": details.autoAck,  # pyright: ignore[reportDeprecated]  # and still shown
        "subName": source.subscriptionName,
        "parallelism": details.parallelism,
        "cleanupSubscription": source.cleanupSubscription,
        "runtimeFlags": details.runtimeFlags,
        "customRuntimeOptions": details.customRuntimeOptions,
        "subscriptionPosition": "Earliest" if source.subscriptionPosition == EARLIEST else "Latest",
    }
    # Upstream leaves these two out, and so loses them in an update.
    config["inputTypeClassName"] = source.typeClassName
    config["outputTypeClassName"] = sink.typeClassName
    # An empty text is what protobuf has for a field that is not set.
    config = {name: value for name, value in config.items() if value != ""}
    # As upstream does, these are shown only where they differ from the default.
    if source.skipToLatest:
        config["skipToLatest"] = True
    if sink.forwardSourceMessageProperty:
        config["forwardSourceMessageProperty"] = True
    if source.timeoutMs:
        config["timeoutMs"] = source.timeoutMs
    if details.secretsMap:
        config["secrets"] = json.loads(details.secretsMap)
    if details.HasField("resources"):
        config["resources"] = resources_config(details.resources)
    # Messages of protobuf that are not set differ from those with zeros in them: REST must show
    # what was given, or an update would change it.
    if details.HasField("retryDetails"):
        config["maxMessageRetries"] = details.retryDetails.maxMessageRetries
        if details.retryDetails.deadLetterTopic:
            config["deadLetterTopic"] = details.retryDetails.deadLetterTopic
    return config


# --- updates

# Members that an update must not change, and upstream's error texts.
FIXED = {
    "outputSerdeClassName": "Output Serde mismatch",
    "outputSchemaType": "Output Schema mismatch",
    "processingGuarantees": "Processing Guarantees cannot be altered",
    "retainOrdering": "Retain Ordering cannot be altered",
    "retainKeyOrdering": "Retain Key Ordering cannot be altered",
    "runtime": "Runtime cannot be altered",
    "autoAck": "AutoAck cannot be altered",
    "subName": "Subscription Name cannot be altered",
}
# Members that name inputs.
INPUTS = ("inputs", "topicsPattern", "customSerdeInputs", "customSchemaInputs", "inputSpecs")
# Members that an update replaces if it has them.
REPLACED = (
    "className", "logTopic", "output", "userConfig", "secrets", "maxMessageRetries",
    "deadLetterTopic", "parallelism", "timeoutMs", "cleanupSubscription", "runtimeFlags",
    "customRuntimeOptions", "producerConfig", "windowConfig", "jar", "go",
)  # fmt: skip


def updated_config(existing: Config, given: Config) -> Config:
    """The config of a function after an update with ``given``; members that are not given stay.

    ``existing`` comes from ``function_config``. Raises ``InvalidDefinition`` for a member that must
    not change.
    """
    change = checked(given, FUNCTION)
    for name, reason in FIXED.items():
        if change.get(name, "") != "" and change[name] != existing.get(name):
            raise InvalidDefinition(reason)
    # As upstream does, an empty text leaves a member as it is.
    merged = dict(existing)
    merged |= {name: change[name] for name in REPLACED if change.get(name, "") != ""}
    # Of resources, only those that the update mentions are replaced.
    if "resources" in change:
        merged["resources"] = existing.get("resources", {}) | change["resources"]
    # However the update names inputs, they are merged into ``inputSpecs``, where all of them are.
    if any(change.get(name) for name in INPUTS):
        inputs = {topic: consumer_config(spec) for topic, spec in inputs_of(change).items()}
        merged["inputSpecs"] = changed_inputs(existing["inputSpecs"], inputs)
    return merged


def changed_inputs(existing: Config, inputs: Config) -> Config:
    """The inputs after an update, which may change how topics are consumed, but not which.

    Raises ``InvalidDefinition``.
    """
    for topic, spec in inputs.items():
        if topic not in existing:
            raise InvalidDefinition("Input Topics cannot be altered")
        # The same text would name other topics.
        if spec["isRegexPattern"] != existing[topic]["isRegexPattern"]:
            raise InvalidDefinition(f"isRegexPattern for input topic {topic} cannot be altered")
    # Each input of the update replaces its earlier spec as a whole; the others stay.
    return existing | inputs
