"""The root of Geminga's error tree, and nothing else.

Every package keeps its own part of the tree in its own ``errors.py`` below this root.
"""

from __future__ import annotations

from typing import ClassVar


class GemingaError(Exception):
    """Something went wrong that Geminga has a name for.

    ``code`` is what a remote client is told (a stable word, not prose); ``retry`` says whether
    asking again, unchanged, can help.
    """

    code: ClassVar[str] = "UnknownError"
    retry: ClassVar[bool] = False
