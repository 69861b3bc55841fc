"""Proves how long a client that publishes too fast is not read."""

from __future__ import annotations

from geminga_broker.policies.publish import PublishLimits
from geminga_broker.topics.decisions.publish_rate import PublishRate


def test_a_bucket_holds_a_second_and_what_is_owed_must_be_waited_for() -> None:
    rate = PublishRate(PublishLimits(messages_per_s=10), now_s=0)
    rate.buckets.take(10, 1000, now_s=0)
    assert rate.wait_s(0) == 0
    rate.buckets.take(5, 0, now_s=0)
    assert rate.wait_s(0) == 0.5
    assert rate.wait_s(0.25) == 0.25
    assert rate.wait_s(9) == 0


def test_long_silence_saves_up_no_more_than_a_second() -> None:
    rate = PublishRate(PublishLimits(messages_per_s=10), now_s=0)
    rate.buckets.take(20, 0, now_s=100)
    assert rate.wait_s(100) == 1


def test_messages_and_bytes_are_counted_each_for_itself() -> None:
    rate = PublishRate(PublishLimits(messages_per_s=10, bytes_per_s=100), now_s=0)
    rate.buckets.take(1, 300, now_s=0)
    assert rate.wait_s(0) == 2
    rate.buckets.take(39, 0, now_s=0)
    assert rate.wait_s(0) == 3


def test_a_limit_that_is_over_holds_no_connection() -> None:
    rate = PublishRate(PublishLimits(bytes_per_s=1), now_s=0)
    rate.buckets.take(1, 1000, now_s=0)
    rate.is_over = True
    assert rate.wait_s(0) == 0


def test_what_is_0_or_below_is_no_limit() -> None:
    assert PublishLimits(0, -1).is_unlimited
    assert not PublishLimits(0, 1).is_unlimited
