"""Tenants name clusters that are known, and go when they are empty."""

from __future__ import annotations

import httpx
import pytest

TENANTS = "/admin/v2/tenants"


async def test_a_tenant_lives_and_goes(client: httpx.AsyncClient) -> None:
    body = {"adminRoles": ["anonymous"], "allowedClusters": ["standalone"]}
    assert (await client.put(f"{TENANTS}/private", json=body)).status_code == 204
    assert (await client.get(f"{TENANTS}/private")).json() == body
    assert (await client.delete(f"{TENANTS}/private")).status_code == 204
    assert (await client.get(TENANTS)).json() == ["public", "pulsar"]


@pytest.mark.parametrize("name", ["public%2Fdefault", "%2E%2E", "bad%20name"])
async def test_what_cannot_be_a_tenants_name_leads_to_no_other_node(
    client: httpx.AsyncClient, name: str
) -> None:
    """``/admin/policies/public/default`` is a namespace's."""
    body = {"allowedClusters": ["standalone"]}
    assert (await client.put(f"{TENANTS}/{name}", json=body)).status_code == 412
    assert (await client.get(f"{TENANTS}/{name}")).status_code == 404
    assert (await client.post(f"{TENANTS}/{name}", json=body)).status_code == 404
    assert (await client.delete(f"{TENANTS}/{name}")).status_code == 404
    assert (await client.get("/admin/v2/namespaces/public/default")).status_code == 200
    answer = await client.get(f"/admin/v2/namespaces/{name}")
    assert (answer.status_code, answer.json()) == (412, {"reason": "Tenant name is not valid"})


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
