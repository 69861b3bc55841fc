"""Proves that policies of publishing are set, shown and taken away as upstream has it."""

from __future__ import annotations

import httpx
import pytest

NS = "/admin/v2/namespaces/public/default"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("deduplication", True),
        ("deduplication", False),
        ("maxProducersPerTopic", 7),
        ("publishRate", {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1}),
    ],
)
async def test_a_policy_is_set_shown_and_taken_away(
    client: httpx.AsyncClient, path: str, value: object
) -> None:
    assert (await client.get(f"{NS}/{path}")).content == b""
    assert (await client.post(f"{NS}/{path}", json=value)).status_code == 204
    assert (await client.get(f"{NS}/{path}")).json() == value
    assert (await client.delete(f"{NS}/{path}")).status_code == 204
    assert (await client.get(f"{NS}/{path}")).content == b""


async def test_policies_without_a_way_to_delete_them(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{NS}/encryptionRequired")).json() is False
    await client.post(f"{NS}/encryptionRequired", json=True)
    assert (await client.get(f"{NS}/encryptionRequired")).json() is True
    await client.post(f"{NS}/deduplicationSnapshotInterval", json=5)
    assert (await client.get(f"{NS}/deduplicationSnapshotInterval")).json() == 5
    await client.post(f"{NS}/deduplicationSnapshotInterval", content=b"null")
    assert (await client.get(f"{NS}/deduplicationSnapshotInterval")).content == b""


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("maxProducersPerTopic", b"-1", 412, "maxProducersPerTopic must be 0 or more"),
        (
            "deduplicationSnapshotInterval",
            b"-1",
            412,
            "interval must be greater than or equal to 0",
        ),
        ("maxProducersPerTopic", b"true", 400, "The body should be a number up to 2147483647"),
        (
            "maxProducersPerTopic",
            b"9999999999",
            400,
            "The body should be a number up to 2147483647",
        ),
        ("deduplication", b"1", 400, "The body should be true or false"),
        ("encryptionRequired", b'"yes"', 400, "The body should be true or false"),
        (
            "publishRate",
            b'{"publishThrottlingRateInMsg": 9999999999}',
            400,
            "A publish rate is too large",
        ),
    ],
)
async def test_what_makes_no_sense_is_refused(
    client: httpx.AsyncClient, path: str, body: bytes, status: int, reason: str
) -> None:
    answer = await client.post(
        f"{NS}/{path}", content=body, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["reason"]) == (status, reason)


async def test_a_namespace_that_is_not_there_has_no_policies(client: httpx.AsyncClient) -> None:
    answer = await client.get("/admin/v2/namespaces/public/nowhere/deduplication")
    assert (answer.status_code, answer.json()["reason"]) == (404, "Namespace does not exist")
