"""Proves that configs of sources become what upstream makes of them, come back whole, and are
refused in upstream's words."""

from __future__ import annotations

import pytest
from google.protobuf.json_format import ParseDict
from tests.unit.geminga_functions.definitions.connectors import (
    COMMON,
    DEFAULT_RESOURCES,
    NAME,
    Config,
)

from geminga_functions.definitions.sources import source_config, source_details, updated_source
from geminga_functions.errors import InvalidDefinition
from geminga_protocol.functions.functions_pb2 import FunctionDetails

LEAST_SOURCE: Config = {"className": "s.S", "topicName": "o"}
SOURCE: Config = LEAST_SOURCE | {
    "configs": {"x": 1},
    "parallelism": 2,
    "schemaType": "json",
    "batchBuilder": "KEY_BASED",
    "logTopic": "l",
    "resources": {"cpu": 1.5},
}
# What upstream makes of these two.
UPSTREAMS_SOURCE: Config = COMMON | {
    "logTopic": "l",
    "parallelism": 2,
    "source": {"className": "s.S", "configs": '{"x": 1}'},
    "sink": {
        "topic": "o",
        "schemaType": "json",
        "forwardSourceMessageProperty": True,
        "producerSpec": {"batchBuilder": "KEY_BASED"},
    },
    "resources": DEFAULT_RESOURCES | {"cpu": 1.5},
    "componentType": "SOURCE",
}
UPSTREAMS_LEAST_SOURCE: Config = COMMON | {
    "source": {"className": "s.S", "configs": "{}"},
    "sink": {"topic": "o", "forwardSourceMessageProperty": True},
    "componentType": "SOURCE",
}


@pytest.mark.parametrize(
    ("config", "upstreams"), [(SOURCE, UPSTREAMS_SOURCE), (LEAST_SOURCE, UPSTREAMS_LEAST_SOURCE)]
)
def test_a_source_is_kept_as_upstream_keeps_it(config: Config, upstreams: Config) -> None:
    assert source_details(NAME, config) == ParseDict(upstreams, FunctionDetails())


def test_the_config_of_a_source_shows_what_upstreams_shows() -> None:
    assert source_config(source_details(NAME, SOURCE)) == SOURCE | {
        "tenant": "t",
        "namespace": "n",
        "name": "c",
        "producerConfig": {
            "useThreadLocalProducers": False,
            "batchBuilder": "KEY_BASED",
            "compressionType": "LZ4",
        },
        "processingGuarantees": "ATLEAST_ONCE",
        "resources": DEFAULT_RESOURCES | {"cpu": 1.5},
    }


def test_what_is_shown_makes_the_same_again() -> None:
    details = source_details(
        NAME, SOURCE | {"archive": "builtin://file", "secrets": {"a": {"b": "c"}}}
    )
    assert details.source.builtin == "file"
    assert source_details(NAME, source_config(details)) == details


SOURCE_REFUSALS = [
    ({"topicName": None}, "Topic name is invalid"),
    ({"topicName": "a/b"}, "Topic name is invalid"),
    ({"parallelism": 0}, "Source parallelism must be a positive number"),
    ({"serdeClassName": "a", "schemaType": "b"}, "Only one of serdeClassName or schemaType"),
    ({"logTopic": "a/b"}, "LogTopic topic a/b is invalid"),
    ({"archive": "/a/s.nar"}, "runs no Java archives"),
    ({"className": None}, "Source classname cannot be null"),
    ({"className": "../s"}, "no name of a class"),
    ({"batchSourceConfig": {"a": 1}}, "leave batchSourceConfig out"),
]


@pytest.mark.parametrize(("change", "reason"), SOURCE_REFUSALS)
def test_a_source_that_cannot_be_is_refused(change: Config, reason: str) -> None:
    with pytest.raises(InvalidDefinition, match=reason):
        source_details(NAME, LEAST_SOURCE | change)


def test_an_update_of_a_source_changes_what_it_says_alone() -> None:
    existing = source_config(source_details(NAME, SOURCE))
    assert updated_source(existing, {"topicName": "z", "schemaType": ""}) == existing | {
        "topicName": "z"
    }
    resources = updated_source(existing, {"resources": {"ram": 5}})["resources"]
    assert resources == DEFAULT_RESOURCES | {"cpu": 1.5, "ram": 5}
    with pytest.raises(InvalidDefinition, match="Processing Guarantees cannot be altered"):
        updated_source(existing, {"processingGuarantees": "ATMOST_ONCE"})
