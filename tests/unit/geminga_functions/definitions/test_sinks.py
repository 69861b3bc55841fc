"""Proves that configs of sinks become what upstream makes of them, come back whole, and are refused
in upstream's words."""

from __future__ import annotations

import pytest
from google.protobuf.json_format import ParseDict
from tests.unit.geminga_functions.definitions.connectors import (
    COMMON,
    DEFAULT_RESOURCES,
    NAME,
    Config,
)

from geminga_functions.definitions.sinks import sink_config, sink_details, updated_sink
from geminga_functions.errors import InvalidDefinition
from geminga_protocol.functions.functions_pb2 import FAILOVER, KEY_SHARED, FunctionDetails

PLAIN = {
    "isRegexPattern": False,
    "schemaProperties": {},
    "consumerProperties": {},
    "poolMessages": False,
}
LEAST_SINK: Config = {"className": "s.S", "inputs": ["a"]}
SINK: Config = LEAST_SINK | {
    "topicsPattern": "p",
    "topicToSerdeClassName": {"b": "B"},
    "topicToSchemaType": {"c": "json"},
    "configs": {"x": 1},
    "maxMessageRetries": 3,
    "deadLetterTopic": "d",
    "timeoutMs": 5,
    "negativeAckRedeliveryDelayMs": 7,
    "sourceSubscriptionName": "sub",
    "sourceSubscriptionPosition": "Earliest",
    "retainOrdering": True,
}
# What upstream makes of it.
UPSTREAMS_SINK: Config = COMMON | {
    "source": {
        "subscriptionType": "FAILOVER",
        "timeoutMs": "5",
        "subscriptionName": "sub",
        "inputSpecs": {
            "a": {},
            "p": {"isRegexPattern": True},
            "b": {"serdeClassName": "B"},
            "c": {"schemaType": "json"},
        },
        "cleanupSubscription": True,
        "subscriptionPosition": "EARLIEST",
        "negativeAckRedeliveryDelayMs": "7",
    },
    "sink": {"className": "s.S", "configs": '{"x": 1}'},
    "retryDetails": {"maxMessageRetries": 3, "deadLetterTopic": "d"},
    "componentType": "SINK",
    "retainOrdering": True,
}


def test_a_sink_is_kept_as_upstream_keeps_it() -> None:
    assert sink_details(NAME, SINK) == ParseDict(UPSTREAMS_SINK, FunctionDetails())


def test_the_config_of_a_sink_shows_what_upstreams_shows() -> None:
    assert sink_config(sink_details(NAME, LEAST_SINK)) == LEAST_SINK | {
        "tenant": "t",
        "namespace": "n",
        "name": "c",
        "sourceSubscriptionPosition": "Latest",
        "inputSpecs": {"a": PLAIN},
        "configs": {},
        "parallelism": 1,
        "processingGuarantees": "ATLEAST_ONCE",
        "retainOrdering": False,
        "retainKeyOrdering": False,
        "resources": DEFAULT_RESOURCES,
        "autoAck": True,
        "cleanupSubscription": True,
    }


def test_what_is_shown_makes_the_same_again() -> None:
    details = sink_details(NAME, SINK | {"sinkType": "file"})
    assert details.sink.builtin == "file"
    assert sink_details(NAME, sink_config(details)) == details


@pytest.mark.parametrize(
    ("change", "kept_as"),
    [
        ({"retainKeyOrdering": True}, KEY_SHARED),
        ({"processingGuarantees": "EFFECTIVELY_ONCE"}, FAILOVER),
    ],
)
def test_the_order_that_is_asked_for_decides_how_inputs_are_shared(
    change: Config, kept_as: int
) -> None:
    assert sink_details(NAME, LEAST_SINK | change).source.subscriptionType == kept_as


SINK_REFUSALS = [
    ({"inputs": []}, "Must specify at least one topic of input"),
    ({"inputs": ["a/b"]}, "Input topic a/b is invalid"),
    ({"parallelism": -1}, "Sink parallelism must be a positive number"),
    ({"timeoutMs": -1}, "Sink timeout must be a positive number"),
    ({"negativeAckRedeliveryDelayMs": -1}, "must not be negative"),
    ({"retainOrdering": True, "retainKeyOrdering": True}, "Only one of retain ordering"),
    (
        {"processingGuarantees": "EFFECTIVELY_ONCE", "retainKeyOrdering": True},
        "retain Key ordering cannot be set",
    ),
    ({"autoAck": False, "processingGuarantees": "ATMOST_ONCE"}, "autoAck must be equal to true"),
    ({"transformFunction": "builtin://t"}, "runs no transformations"),
    ({"deadLetterTopic": "d"}, "max retries is set to infinity"),
]


@pytest.mark.parametrize(("change", "reason"), SINK_REFUSALS)
def test_a_sink_that_cannot_be_is_refused(change: Config, reason: str) -> None:
    with pytest.raises(InvalidDefinition, match=reason):
        sink_details(NAME, LEAST_SINK | change)


# Each was asked of upstream's validateUpdate.
SINK_FIXED = [
    ({"inputs": ["z"]}, "Input Topics cannot be altered"),
    ({"topicsPattern": "a"}, "isRegexPattern for input topic a cannot be altered"),
    ({"retainOrdering": False}, "Retain Ordering cannot be altered"),
    ({"retainKeyOrdering": True}, "Retain Key Ordering cannot be altered"),
    ({"processingGuarantees": "ATMOST_ONCE"}, "Processing Guarantees cannot be altered"),
    ({"sourceSubscriptionName": "z"}, "Subscription Name cannot be altered"),
    ({"autoAck": False}, "AutoAck cannot be altered"),
]


@pytest.mark.parametrize(("change", "reason"), SINK_FIXED)
def test_what_an_update_of_a_sink_may_not_change(change: Config, reason: str) -> None:
    with pytest.raises(InvalidDefinition, match=reason):
        updated_sink(sink_config(sink_details(NAME, SINK)), change)


def test_an_update_of_a_sink_changes_what_it_says_alone() -> None:
    existing = sink_config(sink_details(NAME, SINK))
    changed = updated_sink(
        existing, {"topicToSchemaType": {"a": "json"}, "configs": {"y": 2}, "maxMessageRetries": 9}
    )
    specs = existing["inputSpecs"] | {"a": PLAIN | {"schemaType": "json"}}
    assert changed == existing | {
        "inputSpecs": specs,
        "configs": {"y": 2},
        "maxMessageRetries": 9,
    }
    details = sink_details(NAME, changed)
    assert details.source.inputSpecs["p"].isRegexPattern
    assert details.retryDetails.maxMessageRetries == 9
