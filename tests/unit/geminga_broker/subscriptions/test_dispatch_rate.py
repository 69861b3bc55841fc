"""Proves that dispatch rates let through what they say, messages and bytes each for itself."""

from __future__ import annotations

import pytest

from geminga_broker.policies.dispatching import DispatchLimit
from geminga_broker.subscriptions.dispatch_rate import DispatchRate
from geminga_server.rates.token_bucket import ANY_NUMBER


def test_messages_and_bytes_are_counted_each_for_itself() -> None:
    rate = DispatchRate(DispatchLimit(messages=10, size_bytes=100), 0)
    assert rate.available(0) == (10, 100)
    rate.take(5, 300, 0)
    assert rate.available(0) == (5, -200)
    assert rate.wait_s(0) == pytest.approx(2.01)
    rate.take(40, 0, 0)
    assert rate.wait_s(0) == pytest.approx(3.6)


def test_what_is_not_limited_is_any_number() -> None:
    assert DispatchRate(DispatchLimit(messages=10), 0).available(0) == (10, ANY_NUMBER)
    assert DispatchRate(DispatchLimit(size_bytes=10), 0).available(0) == (ANY_NUMBER, 10)
    assert DispatchLimit(0, -1).is_unlimited
    assert not DispatchLimit(0, 1).is_unlimited


def test_a_relative_limit_lies_above_what_is_published() -> None:
    limit = DispatchLimit(messages=10, size_bytes=20, period_s=2, is_relative=True)
    rate = DispatchRate(limit, 0)
    rate.take(10, 20, 0)
    rate.published(100, 1000, 0)
    assert rate.available(1) == (105, 1010)
    absolute = DispatchRate(DispatchLimit(messages=10, size_bytes=20), 0)
    absolute.published(100, 1000, 0)
    assert absolute.available(9) == (10, 20)
