"""Proves that our choices are those of PulsarApi.proto, no more and no fewer."""

from __future__ import annotations

from geminga_protocol.pulsar.api_pb2 import CommandSubscribe, ProducerAccessMode
from geminga_protocol.pulsar.api_pb2 import KeySharedMode as WireKeySharedMode
from geminga_protocol.pulsar.enums import (
    AccessMode,
    InitialPosition,
    KeySharedMode,
    SubscriptionType,
)


def test_each_choice_has_the_number_that_upstream_gave_it() -> None:
    types = {each.label: each.value for each in SubscriptionType}
    assert types == dict(CommandSubscribe.SubType.items())
    modes = {each.label: each.value for each in AccessMode}
    assert modes == dict(ProducerAccessMode.items())
    positions = {each.label: each.value for each in InitialPosition}
    assert positions == dict(CommandSubscribe.InitialPosition.items())
    key_shared_modes = {each.name: each.value for each in KeySharedMode}
    assert key_shared_modes == dict(WireKeySharedMode.items())


def test_labels_are_what_statistics_show() -> None:
    assert SubscriptionType.KEY_SHARED.label == "Key_Shared"
    assert AccessMode.EXCLUSIVE_WITH_FENCING.label == "ExclusiveWithFencing"


def test_entries_are_tracked_where_consumers_share_them() -> None:
    assert [each.label for each in SubscriptionType if each.tracks_entries] == [
        "Shared",
        "Key_Shared",
    ]
