"""What authors of functions build on: the classes that upstream's ``pulsar`` has for functions.

A function need not descend from any of them: a class with ``process(self, input, context)``, or a
plain ``process(input)``, will do.
"""

from __future__ import annotations

import pickle
from typing import Any


class Function:
    """A function that is called for each message of its inputs."""

    def process(self, input: Any, context: Any) -> Any:  # noqa: A002, ANN401 - upstream's names
        """The output for one input; None for no output. What it raises is counted as an exception
        of the function, and the message is delivered again."""
        raise NotImplementedError


class SerDe:
    """Turns values into the payloads of messages, and back."""

    def serialize(self, input: Any) -> bytes:  # noqa: A002, ANN401 - upstream's names
        """The payload for a value."""
        raise NotImplementedError

    def deserialize(self, input_bytes: bytes) -> Any:  # noqa: ANN401 - any value
        """The value of a payload."""
        raise NotImplementedError


class PickleSerDe(SerDe):
    """Values as pickles: for topics that only trusted functions write to."""

    def serialize(self, input: Any) -> bytes:  # noqa: A002, ANN401 - upstream's names
        """As ``SerDe.serialize``."""
        return pickle.dumps(input)

    def deserialize(self, input_bytes: bytes) -> Any:  # noqa: ANN401 - any value
        """As ``SerDe.deserialize``."""
        return pickle.loads(input_bytes)  # noqa: S301 - what its user asked for


class IdentitySerDe(SerDe):
    """The default: numbers and text as UTF-8, bytes as they are."""

    def serialize(self, input: Any) -> bytes:  # noqa: A002, ANN401 - upstream's names
        """Raises ``TypeError`` for what is no number, text or bytes."""
        if type(input) is bytes:
            return input
        if type(input) in (str, int, float, complex):
            return str(input).encode()
        raise TypeError(f"IdentitySerDe takes numbers, text and bytes, not {type(input).__name__}")

    def deserialize(self, input_bytes: bytes) -> Any:  # noqa: ANN401 - as upstream's
        """An integer, a float or a complex number where the payload reads as one, else text, else
        the bytes: as upstream's does, so that a text of digits becomes a number."""
        try:
            text = input_bytes.decode()
        except UnicodeDecodeError:
            return input_bytes
        for number in (int, float, complex):
            try:
                return number(text)
            except ValueError:
                continue
        return text
