"""What authors of functions build on: the classes that upstream's ``pulsar`` has for functions.

A function need not descend from any of them: a class with ``process(self, input, context)``, or a
plain ``process(input)``, will do. ``function`` lets it say itself what it consumes.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

CallableT = TypeVar("CallableT", bound=Callable[..., Any])
DEFINITION = "__geminga_function__"


@dataclass(frozen=True, slots=True)
class Definition:
    """What a function says of itself: ``testing.run`` and ``geminga functions`` go by it. Other
    tools do not read its code, and need the same words in its config.

    ``settings`` are further fields of a FunctionConfig, by the names that REST gives them.
    """

    inputs: tuple[str, ...]
    output: str | None
    log_topic: str | None
    settings: Mapping[str, object]


def function(
    *misplaced: object,
    inputs: str | Sequence[str] = (),
    output: str | None = None,
    log_topic: str | None = None,
    **settings: object,
) -> Callable[[CallableT], CallableT]:
    """Say of a function what it consumes, and where its results go::

        @geminga_functions.function(inputs="orders", output="bills")
        async def bill(order, context): ...

    A plain function is called for one message after the other; ``async def`` for several at a time,
    with results in the order of the messages; each value that an asynchronous generator yields is a
    result. The function stays as it is, so that it can be called in tests. Raises ``TypeError``
    where it is used otherwise.
    """
    if misplaced:
        raise TypeError(
            "write @geminga_functions.function(inputs=..., output=...): with parentheses, and with "
            f"names for what stands in them, not {misplaced[0]!r}"
        )
    try:
        topics = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        ",".join(topics)
    except TypeError as error:
        raise TypeError(f"inputs are names of topics: {error}") from None
    definition = Definition(topics, output, log_topic, settings)

    def define(defined: CallableT) -> CallableT:
        if not callable(defined):
            raise TypeError(f"{defined!r} is no function, and has no method 'process'")
        setattr(defined, DEFINITION, definition)
        return defined

    return define


def definition_of(defined: object) -> Definition | None:
    """What a function said of itself by ``function``, if it did."""
    found = getattr(defined, DEFINITION, None)
    return found if isinstance(found, Definition) else None


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


# ASCII that no number ends with, neither ``2j``, ``inf``, ``nan`` nor ``(1+2j)``: by its last
# character most text is known for what it is, without three exceptions that cost 4 us.
NO_NUMBERS_END = frozenset(
    character
    for character in map(chr, range(0x21, 0x7F))
    if not character.isdigit() and character not in ".jJfFnNyY)"
)


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
        if text[-1:] in NO_NUMBERS_END:
            return text
        for number in (int, float, complex):
            try:
                return number(text)
            except ValueError:
                continue
        return text


class SecretsProvider:
    """Gives functions their secrets: what ``Context.get_secret`` returns."""

    def init(self, config: Mapping[str, Any]) -> None:
        """Begin, with what the worker is configured with."""

    def provide_secret(self, secret_name: str, path_to_secret: Any) -> str | None:  # noqa: ANN401
        """The secret with this name. ``path_to_secret`` is what the configuration of the function
        says of it."""
        raise NotImplementedError


class ClearTextSecretsProvider(SecretsProvider):
    """The default: what the configuration of the function says is the secret."""

    def provide_secret(self, secret_name: str, path_to_secret: Any) -> str | None:  # noqa: ANN401
        """As ``SecretsProvider.provide_secret``."""
        del secret_name
        return path_to_secret  # type: ignore[no-any-return]  # any JSON


class EnvironmentBasedSecretsProvider(SecretsProvider):
    """Secrets are environment variables of the worker, which instances inherit."""

    def provide_secret(self, secret_name: str, path_to_secret: Any) -> str | None:  # noqa: ANN401
        """As ``SecretsProvider.provide_secret``."""
        del path_to_secret
        return os.environ.get(secret_name)


@dataclass(slots=True)
class Record:
    """What a source reads and a sink writes: a value, and what is said of it.

    ``topic`` is that of a sink's message. ``on_stored`` is for sources: it is called once the
    record is stored, in the order in which records were.
    """

    value: Any
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    event_time_ms: int | None = None
    topic: str | None = None
    on_stored: Callable[[], object] | None = None


class Source:
    """Brings records into a topic. Each method may be ``async def``."""

    def open(self, config: Mapping[str, Any], context: Any) -> Any:  # noqa: ANN401
        """Called once, before the first ``read``, with the source's configuration."""

    def read(self) -> Any:  # noqa: ANN401 - a Record or a value
        """The next ``Record``, or its value alone, waited for; None where nothing will come any
        more. What it raises ends the instance, which its worker starts again."""
        raise NotImplementedError

    def close(self) -> Any:  # noqa: ANN401 - an awaitable, perhaps
        """Called once, at the end."""


class Sink:
    """Takes the messages of topics elsewhere. Each method may be ``async def``."""

    def open(self, config: Mapping[str, Any], context: Any) -> Any:  # noqa: ANN401
        """Called once, before the first ``write``, with the sink's configuration."""

    def write(self, record: Record) -> Any:  # noqa: ANN401 - an awaitable, perhaps
        """Take one record; its message is acknowledged then. What it raises has the message come
        again."""
        raise NotImplementedError

    def close(self) -> Any:  # noqa: ANN401 - an awaitable, perhaps
        """Called once, at the end."""
