"""Small text files that are replaced as a whole: a reader never sees half of one.

That holds even if this process is killed while it writes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast


def write_whole(path: Path, text: str) -> None:
    """Replace the content of ``path`` with ``text``, or leave it unchanged where that fails.

    The file is not synced: its content is valid for one life of a cluster and written again in the
    next, so a power cut may lose it. Raises ``OSError``.
    """
    # In the same directory: a rename between file systems would be a copy. One name for all
    # writers: a process that was killed in between leaves the file behind, and the next write
    # replaces it. Two processes never write at the same time, because the lock of the data
    # directory admits one supervisor.
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text)
    fresh.replace(path)


def keep_whole(path: Path, text: str) -> None:
    """``write_whole``, unless the content is that already: then a full disk does not matter."""
    try:
        if path.read_text() == text:
            return
    except (OSError, UnicodeDecodeError):
        pass
    write_whole(path, text)


def read_record(path: Path) -> dict[str, object]:
    """The JSON object in ``path``; empty where the file is missing or holds anything else.

    For files that are only hints, and can be done without.
    """
    try:
        content: object = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, object]", content) if isinstance(content, dict) else {}
