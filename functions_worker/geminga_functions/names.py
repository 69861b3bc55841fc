"""Names of functions, sources, sinks and of their instances, as topics and REST have them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote

from geminga_functions.errors import InvalidName

# What of a path is still readable in the name of its topic; the digest makes it unique.
SLUG_CHARACTERS_MAX = 100
# File systems take 255 bytes, of which endings and numbers of instances need some.
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
        """Raises ``InvalidName``."""
        parts = text.split("/")
        if len(parts) != 3 or not all(parts):
            raise InvalidName(text, "tenant/namespace/name")
        return cls(*parts)

    def check_new(self) -> None:
        """A function may be created with this name. Raises ``InvalidName``: folders and files of
        its instances are named after it, and lines of logs show it."""
        is_folder = self.name not in {".", ".."} and not {"/", "\\"} & set(self.name)
        is_short = len(self.name.encode(errors="replace")) <= NAME_BYTES_MAX
        if not (is_folder and is_short and self.name.isprintable()):
            form = f"printable characters, {NAME_BYTES_MAX} bytes at most, without slashes"
            raise InvalidName(self.name, form)

    @property
    def url_path(self) -> str:
        """The three names as parts of a path in a URL."""
        return "/".join(quote(part, safe="") for part in (self.tenant, self.namespace, self.name))

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class InstanceName:
    """One of the ``parallelism`` instances of a function, counted from 0:
    ``tenant/namespace/name:0``. It is the key of its assignment."""

    function: FunctionName
    instance: int

    @classmethod
    def parse(cls, text: str) -> InstanceName:
        """Raises ``InvalidName``."""
        function, _, number = text.rpartition(":")
        if not number.isascii() or not number.isdecimal():
            raise InvalidName(text, "tenant/namespace/name:number")
        return cls(FunctionName.parse(function), int(number))

    def __str__(self) -> str:
        return f"{self.function}:{self.instance}"


def slug_of(path: str) -> str:
    """``path`` in characters that names of topics may have; different paths may give the same."""
    return NOT_IN_SLUGS.sub("-", path)


def digest_of(path: str) -> str:
    """A word that no other path has."""
    return hashlib.sha256(path.encode()).hexdigest()[:16]
