"""Whether using a topic creates it is the namespace's word, then the broker's."""

from __future__ import annotations

from geminga_broker.policies.auto_creation import AutoCreation, AutoCreationConfig, auto_creation
from geminga_protocol.records.cluster.namespaces import AutoTopicCreation, Policies


def with_override(override: AutoTopicCreation) -> AutoCreation:
    return auto_creation(AutoCreationConfig(), Policies(auto_topic_creation_override=override))


def test_without_an_override_the_broker_decides() -> None:
    default = auto_creation(AutoCreationConfig(), Policies())
    assert default == AutoCreation(is_allowed=True, partitions=0)
    config = AutoCreationConfig(auto_topic_creation=False, auto_topic_partitions=4)
    assert auto_creation(config, Policies()) == AutoCreation(is_allowed=False, partitions=4)


def test_a_namespace_may_forbid_it() -> None:
    assert with_override(AutoTopicCreation(allowed=False)) == AutoCreation(is_allowed=False)


def test_a_namespace_may_ask_for_partitions() -> None:
    override = AutoTopicCreation(allowed=True, topic_type="partitioned", default_num_partitions=3)
    assert with_override(override) == AutoCreation(is_allowed=True, partitions=3)


def test_partitioned_without_a_number_means_one() -> None:
    override = AutoTopicCreation(allowed=True, topic_type="partitioned")
    assert with_override(override).partitions == 1


def test_a_number_counts_only_for_partitioned_topics() -> None:
    override = AutoTopicCreation(
        allowed=True, topic_type="non-partitioned", default_num_partitions=3
    )
    assert with_override(override).partitions == 0
