"""Tenants name clusters that are known, and go when they are empty."""

from __future__ import annotations

import httpx

TENANTS = "/admin/v2/tenants"


async def test_a_tenant_lives_and_goes(client: httpx.AsyncClient) -> None:
    body = {"adminRoles": ["anonymous"], "allowedClusters": ["standalone"]}
    assert (await client.put(f"{TENANTS}/private", json=body)).status_code == 204
    assert (await client.get(f"{TENANTS}/private")).json() == body
    assert (await client.delete(f"{TENANTS}/private")).status_code == 204
    assert (await client.get(TENANTS)).json() == ["public", "pulsar"]


async def test_a_blank_cluster_is_none(client: httpx.AsyncClient) -> None:
    answer = await client.put(f"{TENANTS}/a", json={"allowedClusters": [" "]})
    assert (answer.status_code, answer.json()["reason"]) == (
        412,
        "Clusters cannot be empty or blank",
    )


async def test_deleting_by_force_is_not_allowed(client: httpx.AsyncClient) -> None:
    assert (await client.delete(f"{TENANTS}/public?force=true")).status_code == 405


async def test_a_body_of_the_wrong_shape_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.put(f"{TENANTS}/a", json={"allowedClusters": "standalone"})
    assert answer.status_code == 400
