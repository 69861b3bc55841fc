"""Proves which entries are replicated to a cluster."""

from __future__ import annotations

import pytest

from geminga_broker.replication.messages import Verdict, judge
from geminga_protocol.pulsar import api_pb2 as api


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, Verdict.SEND),
        ({"replicate_to": ["west", "south"]}, Verdict.SEND),
        ({"replicate_to": ["south"]}, Verdict.NOT_SELECTED),
        ({"replicate_to": ["__local__"]}, Verdict.NOT_SELECTED),
        ({"replicated_from": "south"}, Verdict.FROM_ELSEWHERE),
        ({"replicated_from": "west", "replicate_to": ["west"]}, Verdict.FROM_ELSEWHERE),
        ({"marker_type": 10}, Verdict.MARKER),
        ({"publish_time": 99}, Verdict.EXPIRED),
    ],
)
def test_an_entry_goes_where_it_is_to_go(fields: dict[str, object], verdict: Verdict) -> None:
    said = {"producer_name": "p", "sequence_id": 1, "publish_time": 100} | fields
    metadata = api.MessageMetadata(**said)  # type: ignore[arg-type]
    assert judge(metadata, "west", expires_before_ms=100) is verdict
