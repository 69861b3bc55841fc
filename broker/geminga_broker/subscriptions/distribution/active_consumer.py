"""Which consumer of an Exclusive or Failover subscription is the active one. Pure.

The rule is Pulsar's (AbstractDispatcherSingleActiveConsumer). The lowest priority level goes first.
Among its consumers, partition ``i`` goes to consumer ``i mod n`` in the order of their names; a
topic that is not partitioned goes to the consumer whose point on a hash ring follows the topic's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import mmh3

POINTS_PER_CONSUMER = 100


def _hash(key: str) -> int:
    # As upstream's Murmur3_32Hash, which clears the sign bit.
    return int(mmh3.hash(key.encode(), 0, signed=False)) & 0x7FFFFFFF


def choose_active(topic: str, partition: int, consumers: Sequence[tuple[int, str]]) -> int:
    """The index of the active one in ``consumers``, which are pairs of priority level and name.

    ``partition`` is -1 if the topic is not a partition. At least one consumer is needed. Of equal
    names, the first one wins.
    """
    # By priority level, then by name; ``sorted`` keeps the order of those that are equal.
    order = sorted(range(len(consumers)), key=lambda index: consumers[index])
    best = consumers[order[0]][0]
    candidates = [index for index in order if consumers[index][0] == best]
    if len(candidates) == 1:
        return candidates[0]  # the usual case; a ring takes 80 us, a tenth of loading a topic
    if partition >= 0:
        return candidates[partition % len(candidates)]
    # Of equal hashes the last one wins, as in upstream's sorted map.
    ring = {
        _hash(f"{consumers[index][1]}{point}"): index
        for index in candidates
        for point in range(POINTS_PER_CONSUMER)
    }
    points = sorted(ring)
    return ring[points[bisect_left(points, _hash(topic)) % len(points)]]
