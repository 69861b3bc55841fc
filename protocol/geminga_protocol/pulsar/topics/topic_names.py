"""Names of topics and namespaces: their forms, their parts, and the paths made of them.

The rules are those of ``TopicName`` and ``NamespaceName`` in Apache Pulsar's ``pulsar-common``,
with one addition: ``.`` and ``..`` are refused, because ZooKeeper and URLs read them as places in
a path. Upstream passes such a name on to ZooKeeper and then answers with an internal error.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from sys import intern
from typing import Literal
from urllib.parse import quote, quote_plus, unquote_plus

from geminga_protocol.pulsar.errors import InvalidTopicName

Domain = Literal["persistent", "non-persistent"]
DOMAINS: Mapping[str, Domain] = {"persistent": "persistent", "non-persistent": "non-persistent"}

#     persistent://public/default/orders-partition-3     domain://tenant/namespace/local
#     persistent://public/default/orders                 its base
#     orders                                             the same, in short
#
# A partition is a topic with a name of its own: ``orders-partition-3``.
PARTITION_SUFFIX = "-partition-"
PARTITION_INDEX_MAX = 0x7FFF_FFFF
# A broker asks a dozen times for the namespace of a topic while it loads the topic: finding a kept
# one takes a fifth of the time of making a new one.
NAMESPACES_KEPT_MAX = 1_000

# Upstream's ``NamedEntity``.
_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)
# Names that are the same when encoded, and the characters that only encoded names contain.
_PLAIN = re.compile(r"[-*.\w]+", re.ASCII)
_ENCODED = re.compile(r"[%+]")
_PLACES = frozenset({".", ".."})
NOT_A_NODE = "ZooKeeper has no nodes called . or .."
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,9})", re.ASCII | re.DOTALL)


def is_entity_name(name: str) -> bool:
    """Whether a cluster, tenant or namespace may have this name: letters, digits and ``-=:._``."""
    return _ENTITY.fullmatch(name) is not None and can_name_node(name)


def can_name_node(name: str) -> bool:
    """Whether a ZooKeeper node can have this name once it is encoded: all but ``.`` and ``..``."""
    return name not in _PLACES


@dataclass(frozen=True, slots=True, order=True)
class NamespaceName:
    """A tenant's namespace, written ``tenant/local``."""

    tenant: str
    local: str

    @classmethod
    def parse(cls, name: str) -> NamespaceName:
        """Read ``tenant/local``; raises ``InvalidTopicName``, also for names with a cluster."""
        tenant, slash, local = name.partition("/")
        if not slash or "/" in local:
            raise InvalidTopicName(name, "a namespace is written tenant/namespace")
        return cls.of(tenant, local)

    @classmethod
    def of(cls, tenant: str, local: str) -> NamespaceName:
        """The namespace with these parts; raises ``InvalidTopicName`` for other characters."""
        for part in (tenant, local):
            if not is_entity_name(part):
                raise InvalidTopicName(
                    f"{tenant}/{local}", "tenants and namespaces are of letters, digits and -=:._"
                )
        return cls(tenant, local)

    def __str__(self) -> str:
        return f"{self.tenant}/{self.local}"


# Not ``NamespaceName.of``: the parts of a ``TopicName`` were checked when it was made.
_namespace = lru_cache(NAMESPACES_KEPT_MAX)(NamespaceName)


# Without slots, because ``cached_property`` keeps its values in the instance's dictionary. The
# cached values depend on the four fields alone, which cannot change.
@dataclass(frozen=True)
class TopicName:
    """The full name of a topic or of one partition of a topic.

    ``local`` is the decoded name and may contain any character, slashes included. Upstream reads a
    full name with four parts as tenant, cluster, namespace and topic (its first version of names);
    here it is a topic whose local name has a slash, in a namespace that does not exist.
    """

    domain: Domain
    tenant: str
    namespace_local: str
    local: str

    @classmethod
    def parse(cls, name: str) -> TopicName:
        """Read ``topic``, ``tenant/namespace/topic`` or ``persistent://tenant/namespace/topic``.

        Missing parts are ``persistent`` and ``public/default``. Raises ``InvalidTopicName``.
        """
        domain, separator, rest = name.partition("://")
        # A short name has one part or three; with two it is unclear which one is missing.
        if not separator:
            domain, rest = "persistent", name
            slashes = name.count("/")
            if slashes == 0:
                rest = f"public/default/{name}"
            elif slashes != 2:
                raise InvalidTopicName(name, "it is neither topic nor tenant/namespace/topic")
        # Slashes behind the second belong to the local name.
        parts = rest.split("/", 2)
        if len(parts) != 3:
            raise InvalidTopicName(name, "it is not of the form domain://tenant/namespace/topic")
        return cls.of(domain, *parts)

    @classmethod
    def of(cls, domain: str, tenant: str, namespace_local: str, local: str) -> TopicName:
        """The topic with these (decoded) parts; raises ``InvalidTopicName``."""
        name = f"{domain}://{tenant}/{namespace_local}/{local}"
        known_domain = DOMAINS.get(domain)
        if known_domain is None:
            raise InvalidTopicName(name, f"its domain is none of {', '.join(DOMAINS)}")
        # For its checks only: the result is not kept.
        NamespaceName.of(tenant, namespace_local)
        if not local:
            raise InvalidTopicName(name, "the topic's own part is empty")
        if not can_name_node(local):
            raise InvalidTopicName(name, NOT_A_NODE)
        # An escape in JSON can stand for half a surrogate pair, which UTF-8 cannot encode.
        try:
            local.encode()
        except UnicodeEncodeError:
            raise InvalidTopicName(name, "it holds half a surrogate pair") from None
        # Interned, because many topics lie in one namespace: they share two strings.
        return cls(known_domain, intern(tenant), intern(namespace_local), local)

    @classmethod
    def from_managed_ledger_name(cls, name: str) -> TopicName:
        """The opposite of ``managed_ledger_name``; raises ``InvalidTopicName``."""
        # The local part is encoded in this form, so it has no slash of its own.
        parts = name.split("/")
        if len(parts) != 4:
            raise InvalidTopicName(name, "a managed ledger is named tenant/namespace/domain/topic")
        tenant, namespace_local, domain, encoded_local = parts
        return cls.of(domain, tenant, namespace_local, decode_local(encoded_local))

    @cached_property
    def full(self) -> str:
        """``persistent://tenant/namespace/topic``."""
        return f"{self.domain}://{self.tenant}/{self.namespace_local}/{self.local}"

    def __str__(self) -> str:
        return self.full

    @property
    def is_persistent(self) -> bool:
        """Whether its messages are stored."""
        return self.domain == "persistent"

    @property
    def namespace(self) -> NamespaceName:
        """The namespace it lies in."""
        return _namespace(self.tenant, self.namespace_local)

    @cached_property
    def partition_index(self) -> int:
        """The index of the partition of ``base`` that this name means; -1 for a whole topic."""
        found = _PARTITION.fullmatch(self.local)
        # A number that is no int32 is part of an ordinary name.
        index = int(found[2]) if found else -1
        return index if index <= PARTITION_INDEX_MAX else -1

    @property
    def base(self) -> TopicName:
        """The topic that it is a partition of; itself for a whole topic."""
        if self.partition_index < 0:
            return self
        # The last one counts: "a-partition-1-partition-2" is partition 2 of "a-partition-1".
        local = self.local[: self.local.rindex(PARTITION_SUFFIX)]
        return TopicName(self.domain, self.tenant, self.namespace_local, local)

    def partition(self, index: int) -> TopicName:
        """The name of this topic's partition ``index``, 0 <= index."""
        assert 0 <= index <= PARTITION_INDEX_MAX
        return TopicName(
            self.domain, self.tenant, self.namespace_local, f"{self.local}{PARTITION_SUFFIX}{index}"
        )

    @cached_property
    def encoded_local(self) -> str:
        """The local name as paths of ZooKeeper and of REST contain it."""
        return encode_local(self.local)

    @property
    def url_path(self) -> str:
        """``persistent/tenant/namespace/topic``, as the path of a URL has it."""
        return f"{self.domain}/{self.namespace}/{quote(self.local, safe='')}"

    @property
    def managed_ledger_name(self) -> str:
        """The path of its managed ledger below ``/managed-ledgers`` in ZooKeeper."""
        return f"{self.tenant}/{self.namespace_local}/{self.domain}/{self.encoded_local}"

    @cached_property
    def hash(self) -> int:
        """Its place on its namespace's ring of bundles: ``topic_hash`` of its full name."""
        return topic_hash(self.full)


def encode_local(local: str) -> str:
    """Encode a name for use in paths, as Java's ``URLEncoder`` does: ``a/b c`` is ``a%2Fb+c``."""
    if _PLAIN.fullmatch(local):
        return local  # as most are
    # Java leaves "*" as it is and encodes "~"; Python does the opposite.
    return quote_plus(local, safe="*").replace("~", "%7E")


def decode_local(encoded: str) -> str:
    """The opposite of ``encode_local``; raises ``InvalidTopicName`` for broken UTF-8."""
    if not _ENCODED.search(encoded):
        return encoded  # as most are
    try:
        return unquote_plus(encoded, errors="strict")
    except UnicodeDecodeError:
        raise InvalidTopicName(encoded, "it is not encoded UTF-8") from None


def topic_hash(full_name: str) -> int:
    """The place of a full topic name on the ring of bundles, 0 to 0xffffffff.

    CRC32 (the zip one), as upstream's ``NamespaceBundleFactory``.
    """
    return zlib.crc32(full_name.encode())
