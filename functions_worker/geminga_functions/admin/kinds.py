"""Functions, sources and sinks are *components*; a ``Kind`` says in what their requests differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from geminga_functions.admin.reports import (
    Document,
    Seen,
    connector_status,
    instance_status,
)
from geminga_functions.definitions.functions import (
    function_config,
    function_details,
    updated_config,
)
from geminga_functions.definitions.members import Config
from geminga_functions.definitions.sinks import sink_config, sink_details, updated_sink
from geminga_functions.definitions.sources import source_config, source_details, updated_source
from geminga_functions.names import FunctionName
from geminga_protocol.functions.functions_pb2 import FunctionDetails


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of component."""

    # In paths, and in upstream's error texts.
    path: str
    word: str
    # The part of a form that has its config.
    config_part: str
    type_: FunctionDetails.ComponentType.ValueType
    # From its config to the details that are stored, and back.
    details_of: Callable[[FunctionName, Config], FunctionDetails]
    config_of: Callable[[FunctionDetails], Config]
    # The config after an update: of the existing config, and the given one.
    updated: Callable[[Config, Config], Config]
    # The status of an instance, as REST shows it.
    status_of: Callable[[Seen], Document]


# Of the three, functions alone can be triggered, and have URL patterns of their own.
FUNCTIONS = Kind(
    "functions",
    "Function",
    "functionConfig",
    FunctionDetails.FUNCTION,
    function_details,
    function_config,
    updated_config,
    instance_status,
)
SOURCES = Kind(
    "sources",
    "Source",
    "sourceConfig",
    FunctionDetails.SOURCE,
    source_details,
    source_config,
    updated_source,
    partial(connector_status, taken="numReceivedFromSource", given="numWritten", failed="Source"),
)
SINKS = Kind(
    "sinks",
    "Sink",
    "sinkConfig",
    FunctionDetails.SINK,
    sink_details,
    sink_config,
    updated_sink,
    partial(connector_status, taken="numReadFromPulsar", given="numWrittenToSink", failed="Sink"),
)
