"""Proves which consumers are let in, and what the others are told, in upstream's words."""

from __future__ import annotations

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, consumer_of

from geminga_broker.errors import (
    ConsumerBusy,
    NameReserved,
    NotAllowed,
    SubscriptionAbsent,
)
from geminga_broker.policies.subscriptions import SubscribeLimit, SubscribePolicies
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.subscribe_request import (
    THE_BROKER,
    ConsumerIdentity,
    SubscribeRequest,
)
from geminga_broker.topics.decisions import consumer_admission
from geminga_broker.topics.decisions.consumer_admission import (
    ConsumerAdmission,
    SubscribeRate,
    check_durability,
    check_name,
    check_stored_name,
)
from geminga_protocol.pulsar.enums import SubscriptionType

TOPIC = "persistent://t/n/topic"
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = SubscriptionType
WHO = ConsumerIdentity("/10.0.0.1", "c", 1)


def admission(
    *,
    consumers_max: int = 0,
    consumers_per_subscription_max: int = 0,
    consumers_per_host_max: int = 0,
    subscriptions_max: int = 0,
    types: tuple[SubscriptionType, ...] = tuple(SubscriptionType),
    auto_creation: bool = True,
    rate: SubscribeLimit | None = None,
) -> ConsumerAdmission:
    policies = SubscribePolicies(
        consumers_max=consumers_max,
        consumers_per_subscription_max=consumers_per_subscription_max,
        consumers_per_host_max=consumers_per_host_max,
        subscriptions_max=subscriptions_max,
        types=frozenset(types),
        auto_creation=auto_creation,
        rate=rate or SubscribeLimit(),
    )
    return ConsumerAdmission(TOPIC, policies)


def connected(count: int, host: str = WHO.host) -> list[Consumer]:
    """So many consumers of that host, each on a connection of its own."""
    found: list[Consumer] = []
    for number in range(count):
        session = NotedSession()
        session.address = f"{host}:{50_000 + number}"
        found.append(consumer_of(session))
    return found


def test_only_types_that_are_enabled() -> None:
    only = admission(types=(EXCLUSIVE, FAILOVER))
    only.check(SubscribeRequest("s", EXCLUSIVE), 0)
    with pytest.raises(NotAllowed) as refused:
        only.check(SubscribeRequest("s", KEY_SHARED), 0)
    assert str(refused.value) == f"Topic[{{{TOPIC}}}] doesn't support Key_Shared sub type!"


def test_a_consumer_subscribes_only_so_often() -> None:
    seldom = admission(rate=SubscribeLimit(1, 30))
    request = SubscribeRequest("s", SHARED, consumer=WHO)
    seldom.check(request, 100)
    with pytest.raises(NotAllowed, match="Subscribe limited by subscribe rate limit per consumer"):
        seldom.check(request, 110)
    seldom.check(request, 130)


def test_attempts_still_count_when_a_limit_comes_back() -> None:
    door = admission()
    request = SubscribeRequest("s", SHARED, consumer=WHO)
    limited = SubscribePolicies(rate=SubscribeLimit(1, 30))
    door.apply(limited)
    door.check(request, 100)
    door.apply(SubscribePolicies())
    door.check(request, 100)
    door.apply(limited)
    with pytest.raises(NotAllowed):
        door.check(request, 100)


def test_a_topic_has_only_so_many_subscriptions() -> None:
    few = admission(subscriptions_max=2)
    few.check_subscriptions(1)
    with pytest.raises(NotAllowed) as refused:
        few.check_subscriptions(2)
    assert str(refused.value) == f"Exceed the maximum number of subscriptions of the topic: {TOPIC}"
    admission().check_subscriptions(1000)


@pytest.mark.parametrize(
    ("of_topic", "of_subscription", "reason"),
    [
        (3, 0, "Topic reached max consumers limit"),
        (2, 2, "Subscription reached max consumers limit"),
        (3, 2, "Topic reached max consumers limit"),
    ],
)
def test_a_topic_and_a_subscription_have_only_so_many_consumers(
    of_topic: int, of_subscription: int, reason: str
) -> None:
    few = admission(consumers_max=3, consumers_per_subscription_max=2)
    few.check_consumers(WHO.host, connected(2), 1)
    with pytest.raises(ConsumerBusy) as refused:
        few.check_consumers(WHO.host, connected(of_topic), of_subscription)
    assert str(refused.value) == reason


def test_a_topic_has_only_so_many_consumers_of_one_host() -> None:
    few = admission(consumers_per_host_max=2)
    present = connected(9, host="/10.0.0.2") + connected(1)
    few.check_consumers(WHO.host, present, 9)
    with pytest.raises(ConsumerBusy) as refused:
        few.check_consumers(WHO.host, present + connected(1), 0)
    assert str(refused.value) == "Topic reached max same address consumers limit"


def test_without_limits_any_number_of_consumers_is_let_in() -> None:
    admission().check_consumers(WHO.host, connected(1000), 1000)


def test_subscribing_makes_a_subscription_unless_it_is_forbidden() -> None:
    admission().check_use(is_durable=True)
    admission(auto_creation=False).check_use(is_durable=False)
    with pytest.raises(SubscriptionAbsent, match="Subscription does not exist"):
        admission(auto_creation=False).check_use(is_durable=True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "Empty subscription name"),
        (" \t", "Empty subscription name"),
        ("pulsar.repl.there", "Subscription with reserved subscription name attempted"),
    ],
)
def test_names_that_no_subscription_may_have(name: str, reason: str) -> None:
    with pytest.raises(NameReserved, match=reason):
        check_name(name)
    check_name("pulsar")
    check_name("..")  # of a subscription that is not stored
    with pytest.raises(NameReserved, match="reserved subscription name"):
        check_name("pulsar", is_reserved=True)


@pytest.mark.parametrize("name", [".", ".."])
def test_a_stored_subscription_has_a_name_that_a_node_can_have(name: str) -> None:
    with pytest.raises(NotAllowed, match="ZooKeeper has no nodes called"):
        check_stored_name(name)
    check_stored_name("...")
    check_stored_name("../x")


def test_a_name_is_durable_or_it_is_not() -> None:
    check_durability(is_durable=True, wants_durable=True)
    check_durability(is_durable=False, wants_durable=False)
    with pytest.raises(NotAllowed, match="NonDurable subscription with the same name already"):
        check_durability(is_durable=False, wants_durable=True)
    with pytest.raises(NotAllowed, match="Durable subscription with the same name already"):
        check_durability(is_durable=True, wants_durable=False)


# How often each consumer may subscribe


ANNA = ConsumerIdentity("/10.0.0.1", "anna", 1)
BERT = ANNA._replace(name="bert")


def test_a_rate_lets_so_many_attempts_through_in_a_period() -> None:
    rate = SubscribeRate(SubscribeLimit(2, 30))
    assert [rate.take(ANNA, at) for at in (100, 110, 120, 129.9)] == [True, True, False, False]
    assert rate.take(ANNA, 130)


@pytest.mark.parametrize(
    "other", [BERT, ANNA._replace(host="/10.0.0.2"), ANNA._replace(consumer_id=2)]
)
def test_another_consumer_has_a_count_of_its_own(other: ConsumerIdentity) -> None:
    rate = SubscribeRate(SubscribeLimit(1, 30))
    assert [rate.take(each, 100) for each in (ANNA, other, ANNA, other)] == [
        True,
        True,
        False,
        False,
    ]


def test_no_consumer_is_limited_without_a_limit_nor_the_broker_with_one() -> None:
    assert all(SubscribeRate(SubscribeLimit(0)).take(ANNA, 100) for _ in range(10))
    limited = SubscribeRate(SubscribeLimit(1))
    assert all(limited.take(THE_BROKER, 100) for _ in range(10))


def test_a_new_limit_holds_at_once() -> None:
    rate = SubscribeRate(SubscribeLimit(1, 1000))
    assert rate.take(ANNA, 100)
    rate.limit = SubscribeLimit(2, 1000)
    assert [rate.take(ANNA, 100), rate.take(ANNA, 100)] == [True, False]
    rate.limit = SubscribeLimit(1, 10)
    assert rate.take(ANNA, 100), "the period is shorter now: a new one begins"


def test_a_consumer_beyond_the_bound_is_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_admission, "CONSUMERS_MAX", 1)
    rate = SubscribeRate(SubscribeLimit(1))
    assert [rate.take(each, 100) for each in (ANNA, BERT, BERT, ANNA)] == [True, True, True, False]
