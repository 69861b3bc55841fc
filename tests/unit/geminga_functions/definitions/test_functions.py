"""Proves that configs of functions become what instances run, come back whole, and are refused in
upstream's words."""

from __future__ import annotations

from typing import Any

import pytest

from geminga_functions.definitions.functions import (
    function_config,
    function_details,
    updated_config,
)
from geminga_functions.definitions.members import parse
from geminga_functions.errors import InvalidDefinition
from geminga_functions.names import FunctionName
from geminga_protocol.functions.functions_pb2 import (
    EARLIEST,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    FunctionDetails,
    SubscriptionType,
)

NAME = FunctionName("public", "default", "f")
LEAST: dict[str, Any] = {"className": "m.F", "inputs": ["in"], "output": "out"}


def test_members_that_are_not_given_have_the_defaults_of_upstream() -> None:
    details = function_details(NAME, LEAST)
    assert function_config(details) == {
        "tenant": "public",
        "namespace": "default",
        "name": "f",
        "className": "m.F",
        "inputSpecs": {
            "in": {
                "isRegexPattern": False,
                "schemaProperties": {},
                "consumerProperties": {},
                "poolMessages": False,
            }
        },
        "output": "out",
        "producerConfig": {"useThreadLocalProducers": False, "compressionType": "LZ4"}
        | {"batchBuilder": ""},
        "processingGuarantees": "ATLEAST_ONCE",
        "retainOrdering": False,
        "retainKeyOrdering": False,
        "forwardSourceMessageProperty": True,
        "userConfig": {},
        "runtime": "PYTHON",
        "autoAck": True,
        "parallelism": 1,
        "resources": {"cpu": 1.0, "ram": 1073741824, "disk": 10737418240},
        "cleanupSubscription": True,
        "subscriptionPosition": "Latest",
    }
    assert details.componentType == FunctionDetails.FUNCTION


def test_a_config_with_everything_comes_back_whole() -> None:
    crypto = {
        "cryptoKeyReaderClassName": "m.Reader",
        "cryptoKeyReaderConfig": {"a": 1},
        "encryptionKeys": ["k"],
        "producerCryptoFailureAction": "SEND",
        "consumerCryptoFailureAction": "CONSUME",
    }
    config = {
        "tenant": "public",
        "namespace": "default",
        "name": "f",
        "className": "m.F",
        "inputSpecs": {
            "in-.*": {
                "schemaType": "json",
                "isRegexPattern": True,
                "schemaProperties": {"a": "b"},
                "consumerProperties": {"c": "d"},
                "receiverQueueSize": 0,
                "cryptoConfig": crypto,
                "poolMessages": True,
            }
        },
        "output": "out",
        "producerConfig": {
            "maxPendingMessages": 3,
            "maxPendingMessagesAcrossPartitions": 4,
            "useThreadLocalProducers": True,
            "cryptoConfig": crypto,
            "batchBuilder": "KEY_BASED",
            "compressionType": "ZSTD",
        },
        "outputSchemaType": "avro",
        "logTopic": "log",
        "processingGuarantees": "ATLEAST_ONCE",
        "retainOrdering": True,
        "retainKeyOrdering": False,
        "forwardSourceMessageProperty": True,
        "userConfig": {"a": [1]},
        "secrets": {"s": {"path": "p"}},
        "runtime": "PYTHON",
        "autoAck": False,
        "maxMessageRetries": 2,
        "deadLetterTopic": "dead",
        "subName": "sub",
        "parallelism": 3,
        "resources": {"cpu": 0.5, "ram": 1, "disk": 2},
        "timeoutMs": 5000,
        "cleanupSubscription": False,
        "runtimeFlags": "-x",
        "customRuntimeOptions": "{}",
        "skipToLatest": True,
        "inputTypeClassName": "m.In",
        "outputTypeClassName": "m.Out",
        "subscriptionPosition": "Earliest",
    }
    details = function_details(NAME, config)
    assert function_config(details) == config
    assert details.source.subscriptionPosition == EARLIEST


@pytest.mark.parametrize(
    ("given", "type_"),
    [
        ({}, SHARED),
        ({"retainOrdering": True}, FAILOVER),
        ({"retainKeyOrdering": True}, KEY_SHARED),
        ({"processingGuarantees": "EFFECTIVELY_ONCE"}, FAILOVER),
    ],
)
def test_order_decides_how_instances_share_an_input(
    given: dict[str, Any], type_: SubscriptionType.ValueType
) -> None:
    assert function_details(NAME, LEAST | given).source.subscriptionType == type_


def test_inputs_may_be_given_in_five_ways() -> None:
    config = {
        "className": "m",
        "inputs": ["a"],
        "topicsPattern": "persistent://public/default/b.*",
        "customSerdeInputs": {"c": "m.SerDe"},
        "customSchemaInputs": {"d": '{"schemaType": "json", "schemaProperties": {"x": "y"}}'},
        "inputSpecs": {"e": {"serdeClassName": "m.Other"}},
    }
    specs = function_details(NAME, config).source.inputSpecs
    assert set(specs) == {"a", "persistent://public/default/b.*", "c", "d", "e"}
    assert specs["persistent://public/default/b.*"].isRegexPattern
    assert specs["c"].serdeClassName == "m.SerDe"
    assert specs["d"].schemaProperties == {"x": "y"}
    assert specs["e"].serdeClassName == "m.Other"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"className": None}, "Function classname cannot be null"),
        ({"className": "../m"}, "'../m' is no name of a class or function"),
        ({"inputs": None}, "No input topic(s) specified for the function"),
        ({"inputs": ["://"]}, "Input topic :// is invalid"),
        ({"output": "://"}, "Output topic :// is invalid"),
        ({"logTopic": "://"}, "LogTopic topic :// is invalid"),
        ({"deadLetterTopic": "://"}, "DeadLetter topic :// is invalid"),
        ({"parallelism": 0}, "Function parallelism must be a positive number"),
        ({"timeoutMs": 0}, "Function timeout must be a positive number"),
        (
            {"autoAck": False, "processingGuarantees": "ATMOST_ONCE"},
            "When Guarantees == ATMOST_ONCE, autoAck must be equal to true",
        ),
        (
            {"timeoutMs": 1, "processingGuarantees": "ATMOST_ONCE"},
            "Message timeout can only be specified with processing guarantee is ATLEAST_ONCE",
        ),
        ({"windowConfig": {}}, "There is currently no support windowing in python"),
        (
            {"maxMessageRetries": 0, "processingGuarantees": "EFFECTIVELY_ONCE"},
            "MaxMessageRetries and Effectively once don't gel well",
        ),
        (
            {"deadLetterTopic": "dead"},
            "Dead Letter Topic specified, however max retries is set to infinity",
        ),
        (
            {"retainKeyOrdering": True, "processingGuarantees": "EFFECTIVELY_ONCE"},
            (
                "When effectively once processing guarantee is specified, retain Key ordering "
                "cannot be set"
            ),
        ),
        (
            {"retainKeyOrdering": True, "retainOrdering": True},
            "Only one of retain ordering or retain key ordering can be set",
        ),
        (
            {"outputSchemaType": "json", "outputSerdeClassName": "m.S"},
            "Only one of outputSchemaType or outputSerdeClassName should be set",
        ),
        (
            {"inputSpecs": {"in": {"schemaType": "json", "serdeClassName": "m.S"}}},
            "Only one of schemaType or serdeClassName should be set in inputSpec",
        ),
        (
            {"inputSpecs": {"in": {"receiverQueueSize": -1}}},
            "Receiver queue size should be >= zero",
        ),
        (
            {"customSchemaInputs": {"in": "json"}},
            "Incorrect custom schema inputs,Topic in",
        ),
        (
            {"customSchemaOutputs": {"out": "json"}},
            "Incorrect custom schema outputs,Topic out",
        ),
        (
            {"output": "in"},
            (
                "Output topic in is also being used as an input topic (topics must be one or the "
                "other)"
            ),
        ),
        ({"resources": {"ram": 0}}, "The ram allocation for the function must be positive"),
        (
            {"producerConfig": {"cryptoConfig": {}}},
            "CryptoKeyReader class name required",
        ),
        (
            {"producerConfig": {"cryptoConfig": {"cryptoKeyReaderClassName": "m.R"}}},
            "Must provide encryption key name for crypto key reader",
        ),
        ({"parallelism": "2"}, 'parallelism should be a whole number of 32 bits, not "2"'),
        (
            {"processingGuarantees": "ONCE"},
            (
                "processingGuarantees should be one of ATLEAST_ONCE, ATMOST_ONCE, "
                'EFFECTIVELY_ONCE, MANUAL, not "ONCE"'
            ),
        ),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        function_details(NAME, LEAST | given)
    assert str(refused.value) == reason


@pytest.mark.parametrize("given", [{"jar": "f.jar"}, {"go": "f"}, {"runtime": "JAVA"}])
def test_functions_of_other_languages_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinition, match="in Python only"):
        function_details(NAME, LEAST | given)


@pytest.mark.parametrize("content", ["", "{", "[]", "1", "[" * 100_000])
def test_only_a_json_object_is_a_config(content: str) -> None:
    with pytest.raises(InvalidDefinition):
        parse(content)


# --- updates


def existing(**given: Any) -> dict[str, Any]:
    return function_config(function_details(NAME, LEAST | given))


def test_an_update_keeps_what_it_does_not_say() -> None:
    before = existing(skipToLatest=True, resources={"ram": 5})
    after = updated_config(before, {"parallelism": 2, "resources": {"cpu": 2.0}})
    resources = {"cpu": 2.0, "ram": 5, "disk": 10737418240}
    assert after == before | {"parallelism": 2, "resources": resources}
    assert updated_config(before, LEAST) == before


def test_an_update_changes_how_an_input_is_consumed() -> None:
    after = updated_config(existing(), {"inputSpecs": {"in": {"receiverQueueSize": 7}}})
    assert after["inputSpecs"]["in"]["receiverQueueSize"] == 7


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"inputs": ["other"]}, "Input Topics cannot be altered"),
        (
            {"topicsPattern": "in"},
            "isRegexPattern for input topic in cannot be altered",
        ),
        ({"outputSerdeClassName": "m.S"}, "Output Serde mismatch"),
        ({"outputSchemaType": "json"}, "Output Schema mismatch"),
        ({"processingGuarantees": "MANUAL"}, "Processing Guarantees cannot be altered"),
        ({"retainOrdering": True}, "Retain Ordering cannot be altered"),
        ({"retainKeyOrdering": True}, "Retain Key Ordering cannot be altered"),
        ({"runtime": "JAVA"}, "Runtime cannot be altered"),
        ({"autoAck": False}, "AutoAck cannot be altered"),
        ({"subName": "other"}, "Subscription Name cannot be altered"),
    ],
)
def test_what_an_update_may_not_change_stays(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        updated_config(existing(), given)
    assert str(refused.value) == reason
