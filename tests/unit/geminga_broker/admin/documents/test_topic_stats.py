"""Stats have the fields a real broker prints, in its order, with its resting values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.project_files import GOLDEN

from geminga_broker.admin.documents.subscription_stats import (
    new_consumer_stats,
    new_subscription_stats,
)
from geminga_broker.admin.documents.topic_stats import as_json, new_publisher_stats, new_topic_stats

RECORDED = GOLDEN / "admin"

# What versions after 4.0.6 print as well, and official tests read.
NEWER = ["topicCreationTimeStamp", "lastPublishTimeStamp"]


def golden(name: str) -> Any:
    return json.loads((RECORDED / name).read_text())


def fields(record: object) -> list[str]:
    assert isinstance(record, dict)
    return list(record)


def test_a_fresh_topic_prints_what_upstream_prints() -> None:
    stats = new_topic_stats()
    stats["ownerBroker"] = "127.0.0.1:28080"
    printed = as_json(stats)
    assert isinstance(printed, dict)
    assert [key for key in printed if key not in NEWER] == fields(golden("stats-empty.json"))
    assert {key: printed[key] for key in printed if key not in NEWER} == golden("stats-empty.json")


def test_a_publisher_has_upstreams_fields_in_order() -> None:
    stats = new_publisher_stats()
    for key in ("accessMode", "producerName", "address", "connectedSince", "clientVersion"):
        stats[key] = "x"
    stats["metadata"] = {}
    assert fields(as_json(stats)) == fields(golden("stats-watched.json")["publishers"][0])


@pytest.mark.parametrize("name", ["share", "keys", "fail", "idle"])
def test_a_subscription_has_upstreams_fields_in_order(name: str) -> None:
    real = golden("stats-watched.json")["subscriptions"][name]
    stats = new_subscription_stats()
    stats["type"] = real["type"]
    stats["activeConsumerName"] = real.get("activeConsumerName")
    stats["keySharedMode"] = real.get("keySharedMode")
    assert fields(as_json(stats)) == fields(real)


@pytest.mark.parametrize("name", ["share", "keys"])
def test_a_consumer_has_upstreams_fields_in_order(name: str) -> None:
    real = golden("stats-watched.json")["subscriptions"][name]["consumers"][0]
    stats = new_consumer_stats()
    for key in ("address", "connectedSince", "clientVersion"):
        stats[key] = "x"
    stats["metadata"] = {}
    if "drainingHashes" in real:
        stats["drainingHashes"] = []
        stats["keyHashRangeArrays"] = [(1, 288)]
    assert fields(as_json(stats)) == fields(real)


def test_types_are_upstreams() -> None:
    real = golden("stats-watched.json")["subscriptions"]["keys"]
    ours = as_json(new_subscription_stats())
    assert isinstance(ours, dict)
    assert {key: type(ours[key]) for key in ours if key in real} == {
        key: type(real[key]) for key in real if key in ours
    }


def test_a_field_without_a_value_is_left_out_at_every_depth() -> None:
    assert as_json({"a": None, "b": [{"c": None, "d": 1}], "e": {"f": None}}) == {
        "b": [{"d": 1}],
        "e": {},
    }
