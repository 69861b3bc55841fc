"""The scenarios that Magnetar does not follow yet, and why: each is expected to fail, and has to be
taken out as soon as it does not.

Differences that are meant stand beside the scenario; what stands here is to be built or mended.
"""

from __future__ import annotations

from collections.abc import Mapping

NOT_YET: Mapping[str, str] = {
    "compaction/a-compacted-topic-has-the-last-of-each-key": "compaction",
    "compaction/batches-in-a-compacted-topic": "compaction",
    "compaction/everything-in-a-compacted-topic-was-taken-away": "compaction",
    "key_shared/sticky-ranges-that-cannot-be": "Key_Shared subscriptions",
    "producing/a-checksum-that-is-wrong": "policies and answers of producers",
    "producing/a-message-for-a-producer-that-was-closed": "policies and answers of producers",
    "producing/a-producer-that-comes-again-with-an-epoch": "policies and answers of producers",
    "producing/the-same-producer-id-twice": "policies and answers of producers",
    "stats/counters-are-exact": "members of the stats documents",
    "stats/the-backlog-of-batches": "members of the stats documents",
    "stats/the-shape-of-stats": "members of the stats documents",
    "stats/the-shape-of-stats-of-non-persistent-topics": "members of the stats documents",
    "stats/the-shape-of-stats-of-partitioned-topics": "members of the stats documents",
    "subscriptions_over_rest/clearing-a-backlog": "subscriptions over REST",
    "subscriptions_over_rest/creating-subscriptions": "REST: t/subscription/latest",
    "subscriptions_over_rest/examining-messages": "REST: t/examinemessage",
    "subscriptions_over_rest/peeking-at-batches": "REST: t/subscription/s",
    "subscriptions_over_rest/peeking-at-messages": "subscriptions over REST",
    "subscriptions_over_rest/reading-a-message-by-its-id": "REST: t/ledger/N/entry/N",
    "topic_life/a-backlog-quota-evicts": "termination, expiry, deletion by force",
    "topic_life/deleting-a-namespace-with-topics": "termination, expiry, deletion by force",
}
