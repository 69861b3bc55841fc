"""One table makes the routes of both levels: topics' policies are served by the same rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute

from geminga_broker.admin.policy_routes import (
    AnyPolicies,
    NamespaceLevel,
    PolicyRow,
    Served,
    policy_router,
)
from geminga_broker.admin.routes.namespace.policies import TABLE
from geminga_broker.admin.services import Services
from geminga_broker.admin.statuses import answer_error
from geminga_protocol.records.cluster.namespaces import DispatchRate, Policies, RetentionPolicies
from geminga_protocol.records.cluster.topic_policies import TopicPolicies
from geminga_server.authorization import Action, Resource
from geminga_server.rest.access import Access, on_topic
from geminga_server.rest.app import make_app
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import topic_in

TOPIC = "/admin/v2/persistent/public/default/topic"
RATE = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": -1}
RATE_TOLD = {**RATE, "relativeToPublishRate": False, "ratePeriodInSecond": 1}
RETENTION = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10}
QUOTA = {"limitSize": 1024, "limitTime": -1, "policy": "producer_exception"}


class TopicLevel:
    """Topics' policies in memory."""

    prefix = "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}"

    def __init__(self) -> None:
        self.stored: dict[str, TopicPolicies] = {}

    def served(self, row: PolicyRow) -> Served | None:
        return row.topic

    def rights(self, action: Action) -> Any:
        return on_topic(action)

    def key(self, row: PolicyRow, request: Request) -> str | None:
        return None if row.key is None else row.key(request)

    async def policies(self, request: Request) -> AnyPolicies:
        return self.stored.get(str(topic_in(request)), TopicPolicies())

    async def change(self, request: Request, change: Callable[[Any], Any], *, missing: str) -> None:
        if not topic_in(request).is_persistent:
            raise RestError(404, missing)
        self.stored[str(topic_in(request))] = change(await self.policies(request))


@pytest.fixture
def level() -> TopicLevel:
    """What topics say."""
    return TopicLevel()


@pytest.fixture
async def topics(level: TopicLevel, services: Services) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the routes that the table makes for topics."""
    app = make_app(
        [policy_router(level, TABLE)],
        version=services.version,
        access=Access(services.authorize, services.cluster, Resource("broker", "here")),
        answer_error=answer_error,
    )
    app.state.services = services
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as opened:
        yield opened


def words_of(router: APIRouter) -> set[str]:
    """The last words of the paths that a router serves."""
    return {each.path.rpartition("/")[2] for each in router.routes if isinstance(each, APIRoute)}


def test_every_row_names_fields_of_its_levels_records() -> None:
    namespace, topic = Policies(), TopicPolicies()
    for row in TABLE:
        for field in (row.field, *row.twins):
            assert hasattr(namespace, field)
        assert row.topic is None or hasattr(topic, row.field)


def test_levels_have_names_of_their_own_for_the_same_policy(level: TopicLevel) -> None:
    of_namespaces = words_of(policy_router(NamespaceLevel(), TABLE))
    of_topics = words_of(policy_router(level, TABLE))
    assert {"maxProducersPerTopic", "deduplication"} <= of_namespaces - of_topics
    assert {"maxProducers", "deduplicationEnabled"} <= of_topics - of_namespaces
    assert {"autoTopicCreation", "encryptionRequired"} <= of_namespaces - of_topics


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("maxProducers", 7),
        ("maxConsumers", 7),
        ("maxUnackedMessagesOnConsumer", 7),
        ("compactionThreshold", 7),
        ("deduplicationEnabled", True),
        ("deduplicationSnapshotInterval", 7),
        ("retention", RETENTION),
        ("dispatchRate", RATE_TOLD),
        (
            "inactiveTopicPolicies",
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 30,
                "deleteWhileInactive": True,
            },
        ),
    ],
)
async def test_a_topic_s_policy_is_set_shown_and_taken_away(
    topics: httpx.AsyncClient, path: str, value: object
) -> None:
    assert (await topics.get(f"{TOPIC}/{path}")).content == b""
    assert (await topics.post(f"{TOPIC}/{path}", json=value)).status_code == 204
    assert (await topics.get(f"{TOPIC}/{path}")).json() == value
    assert (await topics.delete(f"{TOPIC}/{path}")).status_code == 204
    assert (await topics.get(f"{TOPIC}/{path}")).content == b""


async def test_a_topic_s_rate_is_not_one_for_each_cluster(
    topics: httpx.AsyncClient, level: TopicLevel
) -> None:
    await topics.post(f"{TOPIC}/dispatchRate", json=RATE)
    (stored,) = level.stored.values()
    assert stored == TopicPolicies(topic_dispatch_rate=DispatchRate(messages=10))


async def test_a_topic_s_quota_is_kept_by_type_and_within_what_is_retained(
    topics: httpx.AsyncClient, level: TopicLevel
) -> None:
    by_age = f"{TOPIC}/backlogQuota?backlogQuotaType=message_age"
    assert (await topics.post(by_age, json={**QUOTA, "limitTime": 60})).status_code == 204
    assert (await topics.post(f"{TOPIC}/backlogQuota", json=QUOTA)).status_code == 204
    shown = (await topics.get(f"{TOPIC}/backlogQuotaMap")).json()
    assert shown["message_age"]["limitTime"] == 60
    assert shown["destination_storage"]["limitSize"] == 1024
    await topics.delete(by_age)
    assert set((await topics.get(f"{TOPIC}/backlogQuotaMap")).json()) == {"destination_storage"}
    large = {**QUOTA, "limitSize": 20 * 1024 * 1024}
    assert (await topics.post(f"{TOPIC}/retention", json=RETENTION)).status_code == 204
    assert (await topics.post(f"{TOPIC}/backlogQuota", json=large)).status_code == 412
    (stored,) = level.stored.values()
    assert stored.retention == RetentionPolicies(time_minutes=10, size_mib=10)


@pytest.mark.parametrize(
    ("words", "status"), [("60", 204), ("-1", 412), ("", 404), ("x", 404), ("9999999999", 404)]
)
async def test_a_topic_s_time_to_live_is_in_the_query(
    topics: httpx.AsyncClient, words: str, status: int
) -> None:
    answer = await topics.post(f"{TOPIC}/messageTTL?messageTTL={words}")
    assert answer.status_code == status
    shown = await topics.get(f"{TOPIC}/messageTTL")
    assert shown.content == (b"60" if status == 204 else b"")
