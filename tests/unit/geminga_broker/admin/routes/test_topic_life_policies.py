"""Proves that policies of how topics come and go are set, shown, refused and taken away."""

from __future__ import annotations

import httpx
import pytest

NS = "/admin/v2/namespaces/public/default"
IN_THREE = {
    "allowAutoTopicCreation": True,
    "topicType": "partitioned",
    "defaultNumPartitions": 3,
}
INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
    "maxInactiveDurationSeconds": 30,
    "deleteWhileInactive": True,
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("autoTopicCreation", IN_THREE),
        ("inactiveTopicPolicies", INACTIVE),
        (
            "inactiveTopicPolicies",
            INACTIVE | {"inactiveTopicDeleteMode": "delete_when_no_subscriptions"},
        ),
    ],
)
async def test_a_policy_is_set_shown_and_taken_away(
    client: httpx.AsyncClient, path: str, value: object
) -> None:
    assert (await client.get(f"{NS}/{path}")).content == b""
    assert (await client.post(f"{NS}/{path}", json=value)).status_code == 204
    assert (await client.get(f"{NS}/{path}")).json() == value
    assert (await client.delete(f"{NS}/{path}")).status_code == 204
    assert (await client.get(f"{NS}/{path}")).content == b""


async def test_creation_by_use_may_be_forbidden_with_a_word(client: httpx.AsyncClient) -> None:
    forbidden = {"allowAutoTopicCreation": False}
    assert (await client.post(f"{NS}/autoTopicCreation", json=forbidden)).status_code == 204
    assert (await client.get(f"{NS}/autoTopicCreation")).json()["allowAutoTopicCreation"] is False
    assert (await client.post(f"{NS}/autoTopicCreation", content=b"null")).status_code == 204
    assert (await client.get(f"{NS}/autoTopicCreation")).content == b""


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("autoTopicCreation", IN_THREE | {"topicType": "odd"}, "Unknown topic type [odd]"),
        ("autoTopicCreation", IN_THREE | {"defaultNumPartitions": 0}, "cannot be less than 1"),
        ("autoTopicCreation", IN_THREE | {"defaultNumPartitions": 10_001}, "more than 10000"),
        ("autoTopicCreation", IN_THREE | {"defaultNumPartitions": None}, "cannot be null"),
        (
            "autoTopicCreation",
            IN_THREE | {"topicType": "non-partitioned"},
            "is not allowed to be set when the type is non-partition.",
        ),
        (
            "inactiveTopicPolicies",
            INACTIVE | {"inactiveTopicDeleteMode": "sometimes"},
            "inactiveTopicDeleteMode should be one of",
        ),
        (
            "inactiveTopicPolicies",
            INACTIVE | {"maxInactiveDurationSeconds": 0},
            "maxInactiveDurationSeconds must be > 0",
        ),
    ],
)
async def test_what_cannot_be_is_refused_with_the_reason(
    client: httpx.AsyncClient, path: str, body: object, reason: str
) -> None:
    answer = await client.post(f"{NS}/{path}", json=body)
    assert answer.status_code == 412
    assert reason in answer.json()["reason"]
    assert (await client.get(f"{NS}/{path}")).content == b""


async def test_no_policy_is_not_a_policy_of_inactivity(client: httpx.AsyncClient) -> None:
    assert (await client.post(f"{NS}/inactiveTopicPolicies", content=b"null")).status_code == 400
