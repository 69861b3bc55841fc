"""Proves which consumers fit to each other, and that the others are told why not."""

from __future__ import annotations

import pytest

from geminga_broker.errors import ConsumerBusy, ConsumerNotAssigned
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_protocol.pulsar.enums import KeySharedMode, SubscriptionType

STICKY = KeySharedPolicy(KeySharedMode.STICKY, ranges=((1, 2),))
IN_ANY_ORDER = KeySharedPolicy(allows_out_of_order=True)


def check(policy: KeySharedPolicy, kind: SubscriptionType = SubscriptionType.KEY_SHARED) -> None:
    SubscribeRequest("sub", kind, key_shared=policy).check()


def test_no_range_and_one_that_ends_before_it_begins_are_refused() -> None:
    check(STICKY)
    check(AUTO_SPLIT)
    check(KeySharedPolicy(KeySharedMode.STICKY), SubscriptionType.SHARED)
    with pytest.raises(ConsumerNotAssigned, match="must not be empty"):
        check(KeySharedPolicy(KeySharedMode.STICKY))
    with pytest.raises(ConsumerNotAssigned, match="start > end"):
        check(KeySharedPolicy(KeySharedMode.STICKY, ranges=((1, 2), (5, 4))))


def test_other_ranges_do_fit() -> None:
    KeySharedPolicy(KeySharedMode.STICKY, ranges=((3, 4),)).check_alike(STICKY)


@pytest.mark.parametrize(
    ("newcomer", "active", "why"),
    [
        (STICKY, AUTO_SPLIT, "mode of 'AUTO_SPLIT' .* key_shared mode 'STICKY'"),
        (IN_ANY_ORDER, AUTO_SPLIT, "does not allow out of order"),
        (AUTO_SPLIT, IN_ANY_ORDER, "allows out of order"),
    ],
)
def test_another_mode_or_another_order_do_not(
    newcomer: KeySharedPolicy, active: KeySharedPolicy, why: str
) -> None:
    assert not newcomer.is_alike(active)
    with pytest.raises(ConsumerBusy, match=f"Subscription is of different type. .*{why}"):
        newcomer.check_alike(active)
