"""Which consumer a key belongs to, by either rule."""

from __future__ import annotations

from geminga_broker.subscriptions.key_shared.hash_ranges import HashRanges
from geminga_broker.subscriptions.key_shared.hash_ring import HashRing
from geminga_broker.subscriptions.key_shared.policy import KeySharedMode, KeySharedPolicy

KeySelector = HashRing | HashRanges


def new_selector(policy: KeySharedPolicy) -> KeySelector:
    """A selector without consumers, as ``policy`` wants keys to be shared."""
    return HashRanges() if policy.mode is KeySharedMode.STICKY else HashRing()
