"""Proves that policies are set, shown, refused and taken away as upstream has it."""

from __future__ import annotations

import httpx
import pytest

NS = "/admin/v2/namespaces/public/default"
UNLIMITED = {
    "dispatchThrottlingRateInMsg": -1,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}


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
        ("deduplication", True),
        ("deduplication", False),
        ("maxProducersPerTopic", 7),
        ("publishRate", {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1}),
        ("messageTTL", 3600),
        ("messageTTL", 0),
        ("maxConsumersPerTopic", 7),
        ("maxConsumersPerSubscription", 7),
        ("maxSubscriptionsPerTopic", 7),
        ("maxUnackedMessagesPerConsumer", 7),
        ("maxUnackedMessagesPerSubscription", 7),
        ("dispatchRate", {**UNLIMITED, "dispatchThrottlingRateInMsg": 10}),
        ("subscriptionDispatchRate", {**UNLIMITED, "ratePeriodInSecond": 5}),
        ("replicatorDispatchRate", {**UNLIMITED, "ratePeriodInSecond": 5}),
        ("subscribeRate", {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 30}),
        ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}),
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


async def test_the_types_of_subscriptions_are_a_list_in_the_order_of_their_numbers(
    client: httpx.AsyncClient,
) -> None:
    path = f"{NS}/subscriptionTypesEnabled"
    assert (await client.get(path)).json() == []
    assert (await client.post(path, json=["Key_Shared", "Exclusive"])).status_code == 204
    assert (await client.get(path)).json() == ["Exclusive", "Key_Shared"]
    assert (await client.delete(path)).status_code == 204
    assert (await client.get(path)).json() == []


async def test_a_dispatch_rate_stands_under_its_old_name_too(client: httpx.AsyncClient) -> None:
    await client.post(f"{NS}/dispatchRate", json={"dispatchThrottlingRateInMsg": 10})
    policies = (await client.get(NS)).json()
    assert policies["topicDispatchRate"] == policies["clusterDispatchRate"] != {}
    await client.delete(f"{NS}/dispatchRate")
    policies = (await client.get(NS)).json()
    assert policies["topicDispatchRate"] == policies["clusterDispatchRate"] == {}


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("maxProducersPerTopic", b"-1", 412, "maxProducersPerTopic must be 0 or more"),
        (
            "deduplicationSnapshotInterval",
            b"-1",
            412,
            "interval must be greater than or equal to 0",
        ),
        ("maxProducersPerTopic", b"true", 400, "The body should be a number up to 2147483647"),
        (
            "maxProducersPerTopic",
            b"9999999999",
            400,
            "The body should be a number up to 2147483647",
        ),
        ("deduplication", b"1", 400, "The body should be true or false"),
        ("encryptionRequired", b'"yes"', 400, "The body should be true or false"),
        (
            "publishRate",
            b'{"publishThrottlingRateInMsg": 9999999999}',
            400,
            "A publish rate is too large",
        ),
        ("messageTTL", b"-1", 412, "Invalid value for message TTL, message TTL must >= 0"),
        ("messageTTL", b'"1"', 400, "The body should be a number up to 2147483647"),
        ("maxConsumersPerTopic", b"-1", 412, "maxConsumersPerTopic must be 0 or more"),
        ("maxSubscriptionsPerTopic", b"-1", 412, "maxSubscriptionsPerTopic must be 0 or more"),
        (
            "dispatchRate",
            b'{"ratePeriodInSecond": 0}',
            400,
            "ratePeriodInSecond must be a number of seconds, 1 or more",
        ),
        (
            "subscriptionDispatchRate",
            b'{"dispatchThrottlingRateInMsg": 9999999999}',
            400,
            "A dispatch rate is too large",
        ),
        (
            "subscribeRate",
            b'{"subscribeThrottlingRatePerConsumer": 9999999999}',
            400,
            "A subscribe rate is too large",
        ),
        (
            "subscriptionTypesEnabled",
            b'["Exclusive", "Queue"]',
            400,
            "The body should be a list of Exclusive, Shared, Failover, Key_Shared",
        ),
    ],
)
async def test_what_makes_no_sense_is_refused(
    client: httpx.AsyncClient, path: str, body: bytes, status: int, reason: str
) -> None:
    answer = await client.post(
        f"{NS}/{path}", content=body, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["reason"]) == (status, reason)


async def test_a_namespace_that_is_not_there_has_no_policies(client: httpx.AsyncClient) -> None:
    absent = "/admin/v2/namespaces/public/absent"
    assert (await client.get(f"{absent}/messageTTL")).status_code == 404
    assert (await client.post(f"{absent}/messageTTL", json=1)).status_code == 404
    assert (await client.delete(f"{absent}/dispatchRate")).status_code == 404
    assert (await client.get(f"{absent}/deduplication")).json() == {
        "reason": "Namespace does not exist"
    }


async def test_policies_without_a_way_to_delete_them(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{NS}/encryptionRequired")).json() is False
    await client.post(f"{NS}/encryptionRequired", json=True)
    assert (await client.get(f"{NS}/encryptionRequired")).json() is True
    await client.post(f"{NS}/deduplicationSnapshotInterval", json=5)
    assert (await client.get(f"{NS}/deduplicationSnapshotInterval")).json() == 5
    await client.post(f"{NS}/deduplicationSnapshotInterval", content=b"null")
    assert (await client.get(f"{NS}/deduplicationSnapshotInterval")).content == b""


async def test_creation_by_use_may_be_forbidden_with_a_word(client: httpx.AsyncClient) -> None:
    forbidden = {"allowAutoTopicCreation": False}
    assert (await client.post(f"{NS}/autoTopicCreation", json=forbidden)).status_code == 204
    assert (await client.get(f"{NS}/autoTopicCreation")).json()["allowAutoTopicCreation"] is False
    assert (await client.post(f"{NS}/autoTopicCreation", content=b"null")).status_code == 204
    assert (await client.get(f"{NS}/autoTopicCreation")).content == b""


@pytest.mark.parametrize(
    ("name", "known", "unknown"),
    [
        ("schemaCompatibilityStrategy", "BACKWARD", "backward"),
        ("schemaAutoUpdateCompatibilityStrategy", "Backward", "BACKWARD"),
    ],
)
async def test_a_strategy_that_does_not_exist_leaves_the_present_one(
    client: httpx.AsyncClient, name: str, known: str, unknown: str
) -> None:
    """A real Pulsar answers 204, and takes the present one away."""
    assert (await client.put(f"{NS}/{name}", json=known)).status_code == 204
    answer = await client.put(f"{NS}/{name}", json=unknown)
    assert answer.status_code == 400
    assert f"should be one of {'UNDEFINED' if known.isupper() else 'AutoUpdateDisabled'}" in str(
        answer.json()["reason"]
    )
    assert (await client.put(f"{NS}/{name}", json=7)).status_code == 400
    assert (await client.get(f"{NS}/{name}")).json() == known
    assert (await client.put(f"{NS}/{name}", content=b"null")).status_code == 204
    assert (await client.get(f"{NS}/{name}")).text in ('"UNDEFINED"', "")


async def test_no_policy_is_not_a_policy_of_inactivity(client: httpx.AsyncClient) -> None:
    assert (await client.post(f"{NS}/inactiveTopicPolicies", content=b"null")).status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("autoTopicCreation", IN_THREE | {"topicType": "odd"}, "Unknown topic type [odd]"),
        (
            "autoTopicCreation",
            IN_THREE | {"defaultNumPartitions": 0},
            "[defaultNumPartitions] cannot be less than 1 for partition type.",
        ),
        (
            "autoTopicCreation",
            IN_THREE | {"defaultNumPartitions": 10_001},
            "[defaultNumPartitions] cannot be more than 10000 for partition type.",
        ),
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
async def test_what_cannot_be_of_a_topics_life_is_refused_with_the_reason(
    client: httpx.AsyncClient, path: str, body: object, reason: str
) -> None:
    answer = await client.post(f"{NS}/{path}", json=body)
    assert answer.status_code == 412
    assert reason in answer.json()["reason"]
    assert (await client.get(f"{NS}/{path}")).content == b""
