"""Sources: from ``SourceConfig``, the JSON of users, to ``FunctionDetails``, and back.

A source is stored as a function whose input is the source's class, and whose output is its topic.
Java archives, which workers of Geminga cannot run, and sources that read in batches are refused.
"""

from __future__ import annotations

import json

from geminga_functions.definitions.functions import CLASS_NAME
from geminga_functions.definitions.members import (
    GUARANTEES,
    Config,
    Members,
    MemberType,
    check_topic,
    checked,
    is_topic,
    producer_config,
    producer_of,
    resources_config,
    resources_of,
)
from geminga_functions.errors import InvalidDefinition
from geminga_functions.names import FunctionName
from geminga_protocol.functions.functions_pb2 import (
    FunctionDetails,
    ProcessingGuarantees,
    SinkSpec,
    SourceSpec,
)

# Where the parts of a component stand in its FunctionDetails:
#
#              source                    sink
#   function   inputs                    output topic
#   source     the user's class          output topic
#   sink       inputs                    the user's class
#
# The members of upstream's SourceConfig.
SOURCE: Members = {
    "className": MemberType.TEXT,
    "archive": MemberType.TEXT,
    "sourceType": MemberType.TEXT,
    "topicName": MemberType.TEXT,
    "producerConfig": MemberType.MAPPING,
    "serdeClassName": MemberType.TEXT,
    "schemaType": MemberType.TEXT,
    "batchBuilder": MemberType.TEXT,
    "configs": MemberType.MAPPING,
    "secrets": MemberType.MAPPING,
    "batchSourceConfig": MemberType.MAPPING,
    "parallelism": MemberType.INTEGER,
    "processingGuarantees": GUARANTEES,
    "resources": MemberType.MAPPING,
    "logTopic": MemberType.TEXT,
    "runtimeFlags": MemberType.TEXT,
    "customRuntimeOptions": MemberType.TEXT,
}
# The function between a source and its topic, which upstream stores; instances here ignore it.
IDENTITY = "org.apache.pulsar.functions.api.utils.IdentityFunction"
BUILT_IN = "builtin://"


def source_details(name: FunctionName, given: Config) -> FunctionDetails:
    """The details of a new source with this config. Raises ``InvalidDefinition``."""
    config = checked(given, SOURCE)
    set_built_in(config, "sourceType")
    if not is_topic(config.get("topicName", "")):
        raise InvalidDefinition("Topic name is invalid")
    # After the built-in name has moved to ``archive``: a built-in source needs no class.
    check_common(config, "Source")
    if config.get("serdeClassName") and config.get("schemaType"):
        raise InvalidDefinition("Only one of serdeClassName or schemaType should be set")
    if "batchSourceConfig" in config:
        raise InvalidDefinition(
            "This functions worker runs no sources in batches: leave batchSourceConfig out"
        )
    details = connector_details(name, config, FunctionDetails.SOURCE)
    # In details, the source has the class of the user's, and the sink the topic of its records.
    set_class(details.source, config)
    sink = details.sink
    sink.topic = config["topicName"]
    sink.serDeClassName = config.get("serdeClassName", "").strip()
    sink.schemaType = config.get("schemaType", "").strip()
    # As upstream stores it: records keep their properties.
    sink.forwardSourceMessageProperty = True
    if "producerConfig" in config:
        sink.producerSpec.CopyFrom(producer_of(config["producerConfig"]))
    if "batchBuilder" in config:
        sink.producerSpec.batchBuilder = config["batchBuilder"]
    return details


def source_config(details: FunctionDetails) -> Config:
    """The config of a source, from its details, with defaults filled in."""
    sink = details.sink
    config = connector_config(details, details.source)
    config |= {
        "topicName": sink.topic,
        "serdeClassName": sink.serDeClassName,
        "schemaType": sink.schemaType,
    }
    # It is set where the config has a ``producerConfig`` or a ``batchBuilder``.
    if sink.HasField("producerSpec"):
        config["producerConfig"] = producer_config(sink.producerSpec)
        config["batchBuilder"] = sink.producerSpec.batchBuilder
    # An empty text is what protobuf has for a field that is not set.
    return {name: value for name, value in config.items() if value != ""}


def updated_source(existing: Config, given: Config) -> Config:
    """The config of a source after an update with ``given``; members that are not given stay.

    ``existing`` comes from ``source_config``. Raises ``InvalidDefinition`` for a member that must
    not change.
    """
    change = checked(given, SOURCE)
    set_built_in(change, "sourceType")
    return merged(existing, change, {"processingGuarantees": GUARANTEES_FIXED})


# --- what sources and sinks have in common

GUARANTEES_FIXED = "Processing Guarantees cannot be altered"


def set_built_in(config: Config, member: str) -> None:
    """Move the name of a built-in connector from ``member`` to ``archive``, as a ``builtin://``."""
    # One member for both from here on: where the code comes from. REST shows that one, as upstream
    # does.
    name = config.pop(member, None)
    if name:
        # It wins over an ``archive`` that is given besides.
        config["archive"] = f"{BUILT_IN}{name}"


def check_common(config: Config, word: str) -> None:
    """Check the members that sources and sinks share. Raises ``InvalidDefinition``."""
    archive = config.get("archive", "")
    if archive.endswith((".jar", ".nar")):
        raise InvalidDefinition(
            f"This functions worker runs no Java archives: give a {word.lower()} in Python (.py, "
            ".zip or .whl) and the name of its class, or a built-in one"
        )
    # Of a built-in connector the worker knows the class itself.
    if not archive.startswith(BUILT_IN):
        class_name = config.get("className", "")
        if not class_name:
            raise InvalidDefinition(f"{word} classname cannot be null")
        # No path may be hidden in it: instances import what it names from the package.
        if not CLASS_NAME.fullmatch(class_name):
            raise InvalidDefinition(f"{class_name!r} is no name of a class")
    check_topic(config, "logTopic", "LogTopic")
    if config.get("parallelism", 1) <= 0:
        raise InvalidDefinition(f"{word} parallelism must be a positive number")


def connector_details(
    name: FunctionName, config: Config, component: FunctionDetails.ComponentType.ValueType
) -> FunctionDetails:
    """The part of the details that sources and sinks share. Raises ``InvalidDefinition``."""
    return FunctionDetails(
        tenant=name.tenant,
        namespace=name.namespace,
        name=name.name,
        className=IDENTITY,
        runtime=FunctionDetails.PYTHON,
        componentType=component,
        logTopic=config.get("logTopic", ""),
        processingGuarantees=ProcessingGuarantees.Value(
            config.get("processingGuarantees", "ATLEAST_ONCE")
        ),
        secretsMap=json.dumps(config["secrets"]) if config.get("secrets") else "",
        # Sources have no such member: they consume nothing, and it stays true.
        autoAck=config.get("autoAck", True),
        parallelism=config.get("parallelism", 1),
        resources=resources_of(config.get("resources", {})),
        runtimeFlags=config.get("runtimeFlags", ""),
        customRuntimeOptions=config.get("customRuntimeOptions", ""),
    )


def set_class(spec: SourceSpec | SinkSpec, config: Config) -> None:
    """Set the class of a source or sink, or the name of a built-in one, and its settings."""
    archive = config.get("archive", "")
    if archive.startswith(BUILT_IN):
        spec.builtin = archive.removeprefix(BUILT_IN)
    spec.className = config.get("className", "")
    # The settings of the connector, which it gets as they are when it is opened.
    spec.configs = json.dumps(config.get("configs", {}))


def connector_config(details: FunctionDetails, spec: SourceSpec | SinkSpec) -> Config:
    """The part of the config that sources and sinks share, from the details."""
    config: Config = {
        "tenant": details.tenant,
        "namespace": details.namespace,
        "name": details.name,
        "className": spec.className,
        "archive": f"{BUILT_IN}{spec.builtin}" if spec.builtin else "",
        "configs": json.loads(spec.configs or "{}"),
        "parallelism": details.parallelism,
        "processingGuarantees": ProcessingGuarantees.Name(details.processingGuarantees),
        "logTopic": details.logTopic,
        "runtimeFlags": details.runtimeFlags,
        "customRuntimeOptions": details.customRuntimeOptions,
    }
    if details.secretsMap:
        config["secrets"] = json.loads(details.secretsMap)
    if details.HasField("resources"):
        config["resources"] = resources_config(details.resources)
    return config


def merged(existing: Config, change: Config, fixed: dict[str, str]) -> Config:
    """The config ``existing`` after an update with ``change``.

    ``fixed`` has the members that must not change, and the texts of their errors. Raises
    ``InvalidDefinition``.
    """
    # Clients send an empty text for a member that they do not set.
    said = {name: value for name, value in change.items() if value != ""}
    # The same value again is no change: clients send whole configs.
    for name, reason in fixed.items():
        if name in said and said[name] != existing.get(name):
            raise InvalidDefinition(reason)
    # Of resources, only those that the update mentions are replaced.
    if "resources" in said:
        said["resources"] = existing.get("resources", {}) | said["resources"]
    # As a whole: nested members, except resources, are replaced and not merged.
    return existing | said
