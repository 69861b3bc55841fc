"""The HTTP statuses of the errors of the broker, and of the cluster's records.

They are upstream's. An error that is not here answers 500.
"""

from __future__ import annotations

from geminga_broker.errors import (
    NameReserved,
    NotAllowed,
    ServiceNotReady,
    StorageUnavailable,
    SubscriptionNotFound,
    TopicBusy,
    TopicExists,
    TopicFenced,
    TopicNotFound,
    TopicReplicated,
)
from geminga_broker.ownership.errors import (
    BundleNotSplit,
    InvalidBundles,
    NotOwned,
    ServedInOtherClusters,
    UnknownSplitAlgorithm,
)
from geminga_broker.policies.errors import ConflictingPolicies, InvalidPolicy
from geminga_broker.schemas.errors import IncompatibleSchema, InvalidSchema, SchemaNotFound
from geminga_cluster.errors import REST_STATUSES, PartitionedTopicExists
from geminga_server.rest.answers import answer_errors

# Upstream's text for topics of both kinds.
_TOPIC_EXISTS = "This topic already exists"

answer_error = answer_errors(
    {
        **REST_STATUSES,
        TopicNotFound: 404,
        SubscriptionNotFound: 404,
        SchemaNotFound: 404,
        TopicExists: 409,
        IncompatibleSchema: 409,
        # 412 is upstream's status for a refusal by the present state, 409 for what exists already.
        TopicBusy: 412,
        NameReserved: 412,
        ConflictingPolicies: 412,
        InvalidSchema: 422,
        TopicReplicated: 422,
        InvalidBundles: 400,
        InvalidPolicy: 400,
        NotAllowed: 405,
        # Clients and other brokers retry after a 503.
        NotOwned: 503,
        ServedInOtherClusters: 412,
        BundleNotSplit: 412,
        UnknownSplitAlgorithm: 406,
        TopicFenced: 503,
        StorageUnavailable: 503,
        ServiceNotReady: 503,
    },
    reasons={TopicExists: _TOPIC_EXISTS, PartitionedTopicExists: _TOPIC_EXISTS},
)
