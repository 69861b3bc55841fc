"""Small text files that nobody ever reads half of, whatever ends us while we write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast


def write_whole(path: Path, text: str) -> None:
    """Make ``text`` the content of ``path``: all of it or, where this fails, nothing.

    Not synced: what is written so is right for one life of a cluster, and made anew in the next.
    Raises ``OSError``.
    """
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text)
    fresh.replace(path)


def keep_whole(path: Path, text: str) -> None:
    """``write_whole``, but not where the file says so already: a full disk must not matter then."""
    try:
        if path.read_text() == text:
            return
    except (OSError, UnicodeDecodeError):
        pass
    write_whole(path, text)


def read_record(path: Path) -> dict[str, object]:
    """The JSON object in ``path``, a hint: what is not there, or is no such object, is empty."""
    try:
        content: object = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, object]", content) if isinstance(content, dict) else {}
