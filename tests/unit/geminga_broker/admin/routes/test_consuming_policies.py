"""Proves that policies of consuming are set, shown and taken away as upstream has it."""

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


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("messageTTL", 3600),
        ("messageTTL", 0),
        ("maxConsumersPerTopic", 7),
        ("maxConsumersPerSubscription", 7),
        ("maxSubscriptionsPerTopic", 7),
        ("maxUnackedMessagesPerConsumer", 7),
        ("maxUnackedMessagesPerSubscription", 7),
        ("dispatchRate", {**UNLIMITED, "dispatchThrottlingRateInMsg": 10}),
        ("subscriptionDispatchRate", {**UNLIMITED, "ratePeriodInSecond": 5}),
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
