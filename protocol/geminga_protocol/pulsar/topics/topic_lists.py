"""Lists of topics as clients with a pattern ask for them: filtered, and summed up in a hash.

Facts: ``TopicList`` in Apache Pulsar's ``pulsar-common``.
"""

from __future__ import annotations

from collections.abc import Iterable

from crc32c import crc32c

from geminga_protocol.pulsar.errors import InvalidPattern
from geminga_protocol.pulsar.topics.topic_names import DOMAINS, TopicName
from geminga_protocol.pulsar.topics.topic_patterns import TopicPattern

_SCHEME_SEPARATOR = "://"


class TopicFilter:
    """Which topics a client's ``pattern`` means.

    The domain in the pattern counts for nothing, and a partition matches by its topic's name.
    Raises ``InvalidPattern``, ``UnsupportedPattern``.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = TopicPattern(without_domain(pattern))

    def takes(self, topic: TopicName) -> bool:
        """Whether ``topic`` is among them."""
        return self._pattern.matches(topic.base.full.partition(_SCHEME_SEPARATOR)[2])


def without_domain(pattern: str) -> str:
    """A pattern of full names as one of names without domain; what stands before it is kept.

    Raises ``InvalidPattern`` where something else stands in the domain's place.
    """
    before, separator, rest = pattern.partition(_SCHEME_SEPARATOR)
    if not separator:
        return pattern
    rest = rest.partition(_SCHEME_SEPARATOR)[0]
    for domain in sorted(DOMAINS, key=len, reverse=True):
        if before.endswith(domain) and rest:
            return before.removesuffix(domain) + rest
    raise InvalidPattern(f"Does not support topic domain: {before}")


def topics_hash(topics: Iterable[str]) -> str:
    """The sum by which client and broker see whether they know the same list.

    CRC32C of the names, sorted as Java sorts them and joined with commas, its bytes from the lowest
    on in hexadecimal.
    """
    names = list(topics)
    names.sort(key=None if all(map(str.isascii, names)) else _utf16)
    return int(crc32c(",".join(names).encode())).to_bytes(4, "little").hex()


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be")
