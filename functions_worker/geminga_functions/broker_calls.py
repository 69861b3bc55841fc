"""Where brokers are asked about topics."""

from __future__ import annotations

from urllib.parse import quote


def topic_url(web_url: str, topic: str, rest: str) -> str:
    """Where ``rest`` of the topic with that whole name is asked for."""
    domain, _, local = topic.partition("://")
    return f"{web_url.rstrip('/')}/admin/v2/{domain}/{quote(local)}{rest}"
