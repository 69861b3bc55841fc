"""Functions, sources and sinks: in what their calls differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from geminga_functions.admin.reports import (
    Document,
    Seen,
    instance_status,
    sink_instance_status,
    source_instance_status,
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
    """A kind of component: its word in paths, upstream's word for it in refusals, the part of a
    form that has its config, what makes details of configs and the other way round, and what its
    instances are shown by."""

    path: str
    word: str
    config_part: str
    type_: FunctionDetails.ComponentType.ValueType
    details_of: Callable[[FunctionName, Config], FunctionDetails]
    config_of: Callable[[FunctionDetails], Config]
    updated: Callable[[Config, Config], Config]
    status_of: Callable[[Seen], Document]


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
    source_instance_status,
)
SINKS = Kind(
    "sinks",
    "Sink",
    "sinkConfig",
    FunctionDetails.SINK,
    sink_details,
    sink_config,
    updated_sink,
    sink_instance_status,
)
