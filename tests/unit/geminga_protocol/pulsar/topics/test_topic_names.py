"""Proves that names mean what they mean to Pulsar: their forms, partitions, paths and hashes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.pulsar.errors import InvalidTopicName
from geminga_protocol.pulsar.topics.topic_names import (
    NamespaceName,
    TopicName,
    can_name_node,
    decode_local,
    encode_local,
    is_entity_name,
    topic_hash,
)


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("orders", "persistent://public/default/orders"),
        ("acme/shop/orders", "persistent://acme/shop/orders"),
        ("persistent://acme/shop/orders", "persistent://acme/shop/orders"),
        ("non-persistent://acme/shop/orders", "non-persistent://acme/shop/orders"),
        ("persistent://acme/shop/a/b %?", "persistent://acme/shop/a/b %?"),
        ("persistent://acme/shop/x://y", "persistent://acme/shop/x://y"),
        ("persistent://acme/shop/../x", "persistent://acme/shop/../x"),
        ("...", "persistent://public/default/..."),
        ("persistent://public/default/žluť", "persistent://public/default/žluť"),
    ],
)
def test_a_name_has_one_full_form(name: str, full: str) -> None:
    topic = TopicName.parse(name)
    assert str(topic) == topic.full == full
    assert TopicName.parse(full) == topic


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a/b",
        "a/b/c/d",
        "a/b/",
        "/",
        "persistent://",
        "persistent://a/b",
        "persistent://a/b/",
        "persistent:///b/c",
        "persistent://a//c",
        "persistent://a b/c/d",
        "persistent://a/b?/d",
        "persistent://ž/b/d",
        "PERSISTENT://a/b/c",
        "http://a/b/c",
        "://a/b/c",
        "persistent://a/b/\ud800",
        ".",
        "..",
        "non-persistent://a/b/..",
        "persistent://../b/c",
        "persistent://a/./c",
    ],
)
def test_what_cannot_be_a_topic_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName) as caught:
        TopicName.parse(name)
    assert caught.value.code == "InvalidTopicName"


def test_a_topic_knows_its_parts() -> None:
    topic = TopicName.parse("non-persistent://acme/shop/orders")
    assert (topic.domain, topic.tenant, topic.namespace_local, topic.local) == (
        "non-persistent",
        "acme",
        "shop",
        "orders",
    )
    assert topic.namespace == NamespaceName("acme", "shop")
    assert not topic.is_persistent
    assert TopicName.parse("orders").is_persistent


def test_a_partition_knows_its_topic_and_its_index() -> None:
    topic = TopicName.parse("acme/shop/orders")
    partition = topic.partition(12)
    assert str(partition) == "persistent://acme/shop/orders-partition-12"
    assert (partition.partition_index, partition.base) == (12, topic)
    assert (topic.partition_index, topic.base) == (-1, topic)


@pytest.mark.parametrize(
    ("local", "index", "base"),
    [
        ("t-partition-0", 0, "t"),
        ("t-partition-2147483647", 2147483647, "t"),
        ("t-partition-1-partition-2", 2, "t-partition-1"),
        ("t-partition-01", -1, "t-partition-01"),
        ("t-partition--1", -1, "t-partition--1"),
        ("t-partition-+1", -1, "t-partition-+1"),
        ("t-partition-1\n", -1, "t-partition-1\n"),
        ("t-partition-", -1, "t-partition-"),
        ("t-partition-2147483648", -1, "t-partition-2147483648"),
        ("t-partition-1x", -1, "t-partition-1x"),
        ("t-partition-٣", -1, "t-partition-٣"),
        ("-partition-3", -1, "-partition-3"),
        ("a\nb-partition-3", 3, "a\nb"),
    ],
)
def test_only_a_plain_number_makes_a_partition(local: str, index: int, base: str) -> None:
    topic = TopicName.of("persistent", "a", "b", local)
    assert topic.partition_index == index
    assert topic.base.local == base


@pytest.mark.parametrize(
    ("local", "encoded"),
    [
        ("orders", "orders"),
        ("a/b %?", "a%2Fb+%25%3F"),
        ("a+b", "a%2Bb"),
        ("-_.*", "-_.*"),
        ("~!'()", "%7E%21%27%28%29"),
        ("ž", "%C5%BE"),
        ("a%2Fb", "a%252Fb"),
    ],
)
def test_a_local_name_is_encoded_as_java_does(local: str, encoded: str) -> None:
    assert encode_local(local) == encoded
    assert decode_local(encoded) == local
    topic = TopicName.of("persistent", "a", "b", local)
    assert topic.managed_ledger_name == f"a/b/persistent/{encoded}"
    assert TopicName.from_managed_ledger_name(topic.managed_ledger_name) == topic


whole_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(whole_texts.filter(can_name_node))
def test_any_text_can_be_a_topics_own_name_unless_it_is_a_way(local: str) -> None:
    topic = TopicName.of("persistent", "a", "b", local)
    assert TopicName.parse(topic.full) == topic
    assert TopicName.from_managed_ledger_name(topic.managed_ledger_name) == topic
    assert "/" not in topic.encoded_local


def test_a_topic_has_a_path_in_urls() -> None:
    topic = TopicName.of("non-persistent", "t", "n", "a b/c?\u00e4")
    assert topic.url_path == "non-persistent/t/n/a%20b%2Fc%3F%C3%A4"


@pytest.mark.parametrize("name", ["a/b/persistent", "a/b/persistent/x/y", "a/b/persistent/%ff"])
def test_what_no_managed_ledger_is_named_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        TopicName.from_managed_ledger_name(name)


def test_the_hash_of_a_topic_is_the_crc32_of_its_full_name() -> None:
    # CRC32's check value: the hash is the common one, of zip and of Guava.
    assert topic_hash("123456789") == 0xCBF43926
    assert TopicName.parse("orders").hash == topic_hash("persistent://public/default/orders")


def test_a_namespace_has_two_parts() -> None:
    assert NamespaceName.parse("acme/shop") == NamespaceName("acme", "shop")
    assert str(NamespaceName.of("a-=:._1", "b")) == "a-=:._1/b"


@pytest.mark.parametrize(
    "name", ["", "acme", "acme/", "/shop", "acme/eu/shop", "acme/sh op", "a/b\n", "../b", "a/.."]
)
def test_what_cannot_be_a_namespace_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        NamespaceName.parse(name)


def test_clusters_tenants_and_namespaces_have_names_of_a_few_letters() -> None:
    assert all(map(is_entity_name, ("acme", "a-1=b:c.d_e", "A")))
    assert not any(map(is_entity_name, ("", "a/b", "a b", "ä", "a\n", "a%", ".", "..")))


def test_names_are_values() -> None:
    assert len({TopicName.parse("orders"), TopicName.parse("public/default/orders")}) == 1
    assert NamespaceName("a", "b") < NamespaceName("a", "c")
