"""Files that the command line names: messages, keys of encryption, credentials."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from urllib.parse import unquote, urlsplit

from geminga_cli.admin.errors import InvalidUse


def key_at(uri: str) -> bytes:
    """The key at ``file:///PATH`` or in ``data:...;base64,TEXT``. Raises ``InvalidUse``."""
    if uri.startswith("data:"):
        head, comma, text = uri.partition(",")
        if not comma or not head.endswith(";base64"):
            raise InvalidUse("a key that begins with data: should be data:TYPE;base64,TEXT")
        try:
            # ``validate``: by default characters that are no base64 would be skipped, and another
            # key would come out.
            return b64decode(text, validate=True)
        except ValueError:
            raise InvalidUse("what follows base64, in the key is no base64") from None
    # Both forms are upstream's (``DefaultCryptoKeyReader``): a plain path is taken for a mistake.
    if not uri.startswith("file:"):
        raise InvalidUse(f"{uri!r} should be file:///PATH or data:TYPE;base64,TEXT")
    return content_of(unquote(urlsplit(uri).path))


def content_of(name: str) -> bytes:
    """The content of the file. Raises ``InvalidUse``."""
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise InvalidUse(f"the file cannot be read: {error}") from None
