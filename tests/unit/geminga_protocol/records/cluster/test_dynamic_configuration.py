"""Dynamic settings are texts by name."""

from __future__ import annotations

import pytest

from geminga_protocol.records.cluster.dynamic_configuration import (
    decode_configuration,
    encode_configuration,
)
from geminga_protocol.records.errors import MalformedRecord


def test_settings_come_back() -> None:
    settings = {"brokerShutdownTimeoutMs": "60000", "empty": ""}
    value = encode_configuration(settings)
    assert value == b'{"brokerShutdownTimeoutMs":"60000","empty":""}'
    assert decode_configuration(value) == settings


def test_a_setting_that_is_no_text_is_refused() -> None:
    with pytest.raises(MalformedRecord, match="x is no text"):
        decode_configuration(b'{"x":1}')
