"""Proves how consumers and sequence ids are made of the metadata of a function."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import geminga
from geminga_functions.errors import InstanceFailed
from geminga_functions.instance.code_loader import Loader
from geminga_functions.instance.inputs import (
    consumer_options,
    inputs_of,
    subscription_of,
    subscription_type,
)
from geminga_functions.instance.outputs import sequence_id_of
from geminga_functions.names import FunctionName, InstanceName
from geminga_protocol.functions.functions_pb2 import (
    EARLIEST,
    EFFECTIVELY_ONCE,
    FAILOVER,
    KEY_SHARED,
    ConsumerSpec,
    FunctionDetails,
    SourceSpec,
)

NAME = InstanceName(FunctionName("t", "n", "f"), 2)


def details() -> FunctionDetails:
    return FunctionDetails(tenant="t", namespace="n", name="f")


def test_the_subscription_is_the_name_of_the_function_unless_one_is_chosen() -> None:
    function = details()
    assert subscription_of(function) == "t/n/f"
    function.source.subscriptionName = "mine"
    assert subscription_of(function) == "mine"


def test_order_that_is_to_be_kept_decides_the_type_of_the_subscription() -> None:
    assert subscription_type(details()) == "shared"
    for function, kind in (
        (FunctionDetails(retainOrdering=True), "failover"),
        (FunctionDetails(processingGuarantees=EFFECTIVELY_ONCE), "failover"),
        (FunctionDetails(retainKeyOrdering=True), "key_shared"),
        (FunctionDetails(source=SourceSpec(subscriptionType=FAILOVER)), "failover"),
        (FunctionDetails(source=SourceSpec(subscriptionType=KEY_SHARED)), "key_shared"),
    ):
        assert subscription_type(function) == kind


def test_a_consumer_is_told_what_the_metadata_say() -> None:
    function = details()
    function.source.timeoutMs = 1500
    function.source.subscriptionPosition = EARLIEST
    function.source.negativeAckRedeliveryDelayMs = 200
    function.retryDetails.maxMessageRetries = 3
    function.retryDetails.deadLetterTopic = "dead"
    spec = ConsumerSpec(receiverQueueSize=ConsumerSpec.ReceiverQueueSize(value=7))
    assert consumer_options(function, spec, NAME) == {
        "type": "shared",
        "initial_position": "earliest",
        "properties": {"application": "pulsar-function", "id": "t/n/f", "instance_id": "2"},
        "nack_delay_s": 0.2,
        "batch_index_acks": True,
        "ack_timeout_s": 1.5,
        "receiver_queue_size": 7,
        "dead_letters": geminga.DeadLetterPolicy(3, "dead"),
    }


def test_inputs_are_topics_and_patterns_old_forms_among_them(tmp_path: Path) -> None:
    function = details()
    function.source.inputSpecs["a"].schemaType = "string"
    function.source.inputSpecs["t/n/b-.*"].isRegexPattern = True
    old = SourceSpec.FromString(b"\x22\x05\x0a\x01c\x12\x00")  # topicsToSerDeClassName
    function.source.MergeFrom(old)
    found = inputs_of(Loader([tmp_path], is_alone=False), function, NAME)
    assert [each.topics for each in found] == ["a", "c", re.compile("t/n/b-.*")]
    assert isinstance(found[0].schema, geminga.StringSchema)
    assert found[1].deserialize is not None
    assert found[1].deserialize(b"12") == 12


positions = st.tuples(st.integers(0, 2**28 - 1), st.integers(0, 2**24 - 1), st.integers(-1, 2047))


@given(positions, positions)
def test_sequence_ids_are_in_the_order_of_positions(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    def place(position: tuple[int, int, int]) -> tuple[int, int, int]:
        return *position[:2], max(position[2], 0)

    first, second = (sequence_id_of(geminga.MessageId(*each)) for each in (one, other))
    assert (first < second) == (place(one) < place(other))
    assert 0 <= first < 2**63


@pytest.mark.parametrize("position", [(2**28, 0, 0), (0, 2**24, 0), (0, 0, 2048)])
def test_a_position_that_is_too_high_is_refused(position: tuple[int, int, int]) -> None:
    with pytest.raises(InstanceFailed):
        sequence_id_of(geminga.MessageId(*position))
