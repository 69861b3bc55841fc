"""Settings that administrators change while brokers run: one node for the whole cluster.

Facts: ``DynamicConfigurationResources`` of Apache Pulsar. Names and values are text.
"""

from __future__ import annotations

from collections.abc import Mapping

from geminga_protocol.records.encodings.json_text import parse_object, render
from geminga_protocol.records.errors import MalformedRecord

DYNAMIC_CONFIGURATION_PATH = "/admin/configuration"

_RECORD = "dynamic configuration"


def encode_configuration(settings: Mapping[str, str]) -> bytes:
    """The bytes of the node."""
    return render(settings)


def decode_configuration(value: bytes) -> dict[str, str]:
    """Read the node. Raises ``MalformedRecord``."""
    settings: dict[str, str] = {}
    for name, text in parse_object(value, _RECORD).items():
        # Upstream writes a ``Map<String, String>``: numbers are text, too.
        if not isinstance(text, str):
            raise MalformedRecord(_RECORD, f"{name} is no text")
        settings[name] = text
    return settings
