"""One REST request by the standard library, which sends a URL as it is."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

TIMEOUT_S = 30.0


class WebAnswer(NamedTuple):
    """What came back; ``headers`` have names in lower case."""

    status: int
    headers: dict[str, str]
    content: bytes

    def json(self) -> Any:
        """The content as JSON; as text where it is none, None where there is none."""
        if not self.content:
            return None
        try:
            return json.loads(self.content)
        except ValueError:
            return self.content.decode("latin-1")


def request(web_url: str, method: str, path: str, body: object = None) -> WebAnswer:
    """Ask and wait; ``body`` goes as JSON."""
    asked = urllib.request.Request(
        web_url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={} if body is None else {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            return WebAnswer(answer.status, _headers(answer.headers), answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return WebAnswer(refused.code, _headers(refused.headers), refused.read())


def _headers(message: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in message.items()}
