"""Properties, as users give them and as commands carry them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from geminga_protocol.pulsar.api_pb2 import KeyValue


def key_values(properties: Mapping[str, str] | None) -> list[KeyValue]:
    """Properties for a command."""
    return [KeyValue(key=key, value=value) for key, value in (properties or {}).items()]


def properties_of(pairs: Iterable[KeyValue]) -> dict[str, str]:
    """Properties from a command; of a key that is there twice the last counts."""
    return {pair.key: pair.value for pair in pairs}
