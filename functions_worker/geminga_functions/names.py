"""The names of functions, sources and sinks, and of their instances."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote

from geminga_functions.errors import InvalidName

# The name of a topic has so many readable characters of its path; a digest makes it unique.
SLUG_CHARACTERS_MAX = 100
# File systems allow 255 bytes, and the files of a function add suffixes and numbers to its name.
NAME_BYTES_MAX = 200
NOT_IN_SLUGS = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True, order=True)
class FunctionName:
    """The fully qualified name of a function, source or sink: ``tenant/namespace/name``."""

    tenant: str
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> FunctionName:
        """Parse ``tenant/namespace/name``. Raises ``InvalidName``."""
        parts = text.split("/")
        # An empty part would be an empty part of a path, too, which some servers drop.
        if len(parts) != 3 or not all(parts):
            raise InvalidName(text, "tenant/namespace/name")
        return cls(*parts)

    def check_new(self) -> None:
        """Check that a new function may have this name. Raises ``InvalidName``.

        Folders and files of its instances are named after it, and log lines contain it.
        """
        # Names of functions that exist are not checked: upstream's workers may have stored others.
        is_folder = self.name not in {".", ".."} and not {"/", "\\"} & set(self.name)
        is_short = len(self.name.encode(errors="replace")) <= NAME_BYTES_MAX
        if not (is_folder and is_short and self.name.isprintable()):
            form = f"printable characters, {NAME_BYTES_MAX} bytes at most, without slashes"
            raise InvalidName(self.name, form)

    @property
    def url_path(self) -> str:
        """The three names as parts of a path in a URL."""
        # Each part by itself, with its slashes and percent signs escaped: the slashes between them
        # separate.
        return "/".join(quote(part, safe="") for part in (self.tenant, self.namespace, self.name))

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class InstanceName:
    """The name of an instance, ``tenant/namespace/name:0``; instances are numbered from 0.

    It is the key of the instance's assignment in the topic of assignments.
    """

    function: FunctionName
    instance: int

    @classmethod
    def parse(cls, text: str) -> InstanceName:
        """Parse ``tenant/namespace/name:number``. Raises ``InvalidName``."""
        # From the right: names may contain colons.
        function, _, number = text.rpartition(":")
        # Digits of other scripts would give a second text for the same name.
        if not number.isascii() or not number.isdecimal():
            raise InvalidName(text, "tenant/namespace/name:number")
        return cls(FunctionName.parse(function), int(number))

    def __str__(self) -> str:
        return f"{self.function}:{self.instance}"


def slug_of(path: str) -> str:
    """``path`` in characters that topic names may have; different paths may have equal slugs."""
    return NOT_IN_SLUGS.sub("-", path)


def digest_of(path: str) -> str:
    """A word that is unique to ``path``: 64 bits of its SHA-256, in hexadecimal digits."""
    # Topics on disk are found by it: another length or algorithm would lose the packages and states
    # that there are.
    return hashlib.sha256(path.encode()).hexdigest()[:16]
