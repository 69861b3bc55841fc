"""What sources and sinks have alike in upstream's records and configs."""

from __future__ import annotations

from typing import Any

from geminga_functions.names import FunctionName

Config = dict[str, Any]

NAME = FunctionName("t", "n", "c")
IDENTITY = "org.apache.pulsar.functions.api.utils.IdentityFunction"
DEFAULT_RESOURCES = {"cpu": 1.0, "ram": 1073741824, "disk": 10737418240}
# What SourceConfigUtils and SinkConfigUtils of Apache Pulsar 4.0.6 make of configs, in what
# all have alike, without the names of Java's types; the runtime is Python's here.
COMMON: Config = {
    "tenant": "t",
    "namespace": "n",
    "name": "c",
    "className": IDENTITY,
    "autoAck": True,
    "parallelism": 1,
    "resources": DEFAULT_RESOURCES,
    "runtime": "PYTHON",
}
