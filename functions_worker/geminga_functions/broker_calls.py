"""The URLs of brokers' REST interface for topics."""

from __future__ import annotations

from urllib.parse import quote


def topic_url(web_url: str, topic: str, rest: str) -> str:
    """The URL of a topic, given by its full name, followed by ``rest``."""
    domain, _, local = topic.partition("://")
    return f"{web_url.rstrip('/')}/admin/v2/{domain}/{quote(local)}{rest}"
