"""Proves that each consumer may subscribe so often in a period, and no other pays for it."""

from __future__ import annotations

import pytest

from geminga_broker.policies.subscribing import SubscribeLimit
from geminga_broker.subscriptions.subscribe_request import NOBODY, ConsumerIdentity
from geminga_broker.topics.consuming import subscribe_rate
from geminga_broker.topics.consuming.subscribe_rate import SubscribeRate

ANNA = ConsumerIdentity("/10.0.0.1", "anna", 1)
BERT = ANNA._replace(name="bert")


def test_so_often_in_a_period() -> None:
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


def test_nobody_is_limited_without_a_limit_nor_the_broker_with_one() -> None:
    assert all(SubscribeRate(SubscribeLimit(0)).take(ANNA, 100) for _ in range(10))
    limited = SubscribeRate(SubscribeLimit(1))
    assert all(limited.take(NOBODY, 100) for _ in range(10))


def test_a_new_limit_holds_at_once() -> None:
    rate = SubscribeRate(SubscribeLimit(1, 1000))
    assert rate.take(ANNA, 100)
    rate.limit = SubscribeLimit(2, 1000)
    assert [rate.take(ANNA, 100), rate.take(ANNA, 100)] == [True, False]
    rate.limit = SubscribeLimit(1, 10)
    assert rate.take(ANNA, 100), "the period is shorter now: a new one begins"


def test_those_counted_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribe_rate, "CONSUMERS_MAX", 1)
    rate = SubscribeRate(SubscribeLimit(1))
    assert [rate.take(each, 100) for each in (ANNA, BERT, BERT, ANNA)] == [True, True, True, False]
