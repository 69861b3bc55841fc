"""What can go wrong in a functions worker.

::

    GemingaError
    └── InvalidName     a name of a function or of an instance has another form than it must have
"""

from __future__ import annotations

from typing import ClassVar

from geminga_runtime.errors import GemingaError


class InvalidName(GemingaError):
    """A name of a function or of an instance has another form than it must have."""

    code: ClassVar[str] = "InvalidName"

    def __init__(self, text: str, form: str) -> None:
        super().__init__(f"{text!r} is no name of the form {form}")
        self.text = text
