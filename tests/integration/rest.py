"""REST requests and metrics in tests, by the standard library, which sends a URL unchanged."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

TIMEOUT_S = 60.0


def rest(
    web_service_url: str,
    method: str,
    path: str,
    body: object = None,
    tls: ssl.SSLContext | None = None,
) -> tuple[int, Any]:
    """Status and decoded JSON of one request; None for an empty body."""
    request = urllib.request.Request(
        web_service_url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={} if body is None else {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=tls) as answer:
            status, content = answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            status, content = refused.code, refused.read()
    return status, json.loads(content) if content else None


def metric(metrics_url: str, name: str) -> float:
    """The value of the only sample of ``name`` on a part's metrics page, whatever its labels."""
    found = samples(metrics_url, name)
    assert len(found) == 1, f"{len(found)} samples of {name}"
    return found[0]


def samples(metrics_url: str, name: str) -> list[float]:
    """The values of all samples of ``name``, whatever their labels."""
    with urllib.request.urlopen(metrics_url, timeout=TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()
    found = (line for line in lines if line.startswith((f"{name} ", f"{name}{{")))
    return [float(line.rpartition(" ")[2]) for line in found]
