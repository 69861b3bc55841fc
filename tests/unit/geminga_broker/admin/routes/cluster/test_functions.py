"""Without a functions worker its calls are refused in the words that admin tools know."""

from __future__ import annotations

import httpx
import pytest


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        "/admin/v2/worker/cluster",
        "/admin/v2/worker-stats/metrics",
        "/admin/v3/functions/public/default",
        "/admin/v3/functions/public/default/f/status",
        "/admin/v3/sources/builtinsources",
        "/admin/v3/source/public/default",
        "/admin/v3/sink/public/default/s/0/status",
        "/admin/v3/sinks",
    ],
)
async def test_functions_are_off(method: str, path: str, client: httpx.AsyncClient) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == 409
    assert answer.json()["reason"].startswith("Pulsar Function Worker is not enabled")
