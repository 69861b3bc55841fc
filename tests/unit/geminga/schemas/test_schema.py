"""Proves that without a schema values are bytes, and only bytes."""

from __future__ import annotations

import pytest

from geminga import BytesSchema, Client, Schema


def test_bytes_stay_as_they_are() -> None:
    schema: Schema[bytes] = BytesSchema()
    assert schema.schema_info is None
    assert schema.encode(b"payload") == schema.decode(b"payload") == b"payload"


def test_what_its_owner_may_change_is_copied() -> None:
    owned = bytearray(b"before")
    payload = BytesSchema().encode(owned)
    owned[:] = b"after!"
    assert payload == b"before"


async def test_what_is_no_bytes_is_refused(client: Client) -> None:
    async with client.producer("orders") as producer:
        with pytest.raises(TypeError, match="a value is bytes, and not str"):
            await producer.send("text")  # type: ignore[arg-type]  # what is tested
