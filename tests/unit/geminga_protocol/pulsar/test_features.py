"""Proves that both sides of a connection agree on the older protocol version."""

from __future__ import annotations

from geminga_protocol.pulsar.features import BROKER_FEATURES, PROTOCOL_VERSION, agreed_version


def test_the_older_version_is_agreed_on() -> None:
    assert agreed_version(20) == 20
    assert agreed_version(PROTOCOL_VERSION) == PROTOCOL_VERSION
    assert agreed_version(99) == PROTOCOL_VERSION


def test_the_broker_does_not_promise_scalable_topics() -> None:
    # Newer official C++ clients would start a lookup that Geminga does not answer.
    assert not BROKER_FEATURES.supports_scalable_topics
