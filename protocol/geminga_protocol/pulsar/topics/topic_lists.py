"""Lists of topics for clients that subscribe to a pattern: filtered, and compared by a hash.

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
    """Decides which topics a client's ``pattern`` selects.

    A domain in the pattern is ignored, and a partition matches by the name of its topic.
    Raises ``InvalidPattern``, ``UnsupportedPattern``.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = TopicPattern(without_domain(pattern))

    def takes(self, topic: TopicName) -> bool:
        """Whether the pattern selects ``topic``."""
        return self._pattern.matches(topic.base.full.partition(_SCHEME_SEPARATOR)[2])


def without_domain(pattern: str) -> str:
    """Remove ``persistent://`` or ``non-persistent://`` from a pattern.

    What precedes the domain (such as ``^`` or ``(?i)``) is kept. Raises ``InvalidPattern`` for
    another domain, with upstream's words.
    """
    # "^persistent://public/default/orders.*" becomes "^public/default/orders.*".
    before, separator, rest = pattern.partition(_SCHEME_SEPARATOR)
    if not separator:
        return pattern
    rest = rest.partition(_SCHEME_SEPARATOR)[0]
    # The longest domain first: "non-persistent" ends with "persistent".
    for domain in sorted(DOMAINS, key=len, reverse=True):
        if before.endswith(domain) and rest:
            return before.removesuffix(domain) + rest
    raise InvalidPattern(f"Does not support topic domain: {before}")


def topics_hash(topics: Iterable[str]) -> str:
    """The hash by which client and broker compare their lists of topics.

    CRC32C of the names, sorted and joined with commas, as little-endian hexadecimal digits.
    """
    names = list(topics)
    # Java sorts by UTF-16 units, Python by code points: the orders differ beyond the basic plane.
    if all(map(str.isascii, names)):
        names.sort()
    else:
        names.sort(key=lambda name: name.encode("utf-16-be"))
    # Upstream prints the bytes of Guava's ``HashCode``, which are in little-endian order.
    return int(crc32c(",".join(names).encode())).to_bytes(4, "little").hex()
