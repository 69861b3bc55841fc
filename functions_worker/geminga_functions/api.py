"""The classes that authors of functions use, as upstream's ``pulsar`` has them.

A function need not inherit from any of them: a class with ``process(self, input, context)``, or a
plain function ``process(input)``, is enough. The decorator ``function`` says in the source itself
which topics the function consumes.
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
    """What a function says of itself by the decorator ``function``.

    ``testing.run`` and ``geminga functions`` use it. Other tools do not read the code, and need the
    same settings in the function's config. ``settings`` are further fields of a FunctionConfig,
    with the names that they have in REST.
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
    """Say which topics a function consumes, and where its results go::

        @geminga_functions.function(inputs="orders", output="bills")
        async def bill(order, context): ...

    A plain function is called for one message after the other, an ``async def`` for several at a
    time; results have the order of the messages in either case. Each value that an asynchronous
    generator yields is a result. The function itself is not changed, so tests can call it. Raises
    ``TypeError`` for wrong arguments.
    """
    # ``@function`` without parentheses would take the function for an input.
    if misplaced:
        raise TypeError(
            "write @geminga_functions.function(inputs=..., output=...): with parentheses, and with "
            f"names for what stands in them, not {misplaced[0]!r}"
        )
    try:
        # A text is a sequence, too: of its characters.
        topics = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        ",".join(topics)  # raises a TypeError unless all of them are texts
    except TypeError as error:
        raise TypeError(f"inputs are names of topics: {error}") from None
    definition = Definition(topics, output, log_topic, settings)

    def define(defined: CallableT) -> CallableT:
        if not callable(defined):
            raise TypeError(f"{defined!r} is no function, and has no method 'process'")
        # An attribute of the function, so that it stays callable as it is.
        setattr(defined, DEFINITION, definition)
        return defined

    return define


def definition_of(defined: object) -> Definition | None:
    """The definition that the decorator ``function`` gave to a function, None without one."""
    found = getattr(defined, DEFINITION, None)
    return found if isinstance(found, Definition) else None


class Function:
    """A function that is called for each message of its inputs."""

    def process(self, input: Any, context: Any) -> Any:  # noqa: A002, ANN401 - upstream's names
        """The output for one input; None for no output.

        An exception is counted, and the message is delivered again.
        """
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


# ASCII characters that no number ends with, not even ``2j``, ``inf``, ``nan`` or ``(1+2j)``. By its
# last character most text is recognized without three exceptions, which take 4 us.
NO_NUMBERS_END = frozenset(
    character
    for character in map(chr, range(0x21, 0x7F))
    if not character.isdigit() and character not in ".jJfFnNyY)"
)


class IdentitySerDe(SerDe):
    """The default serde: numbers and text as UTF-8, bytes as they are."""

    def serialize(self, input: Any) -> bytes:  # noqa: A002, ANN401 - upstream's names
        """As ``SerDe.serialize``. Raises ``TypeError`` except for numbers, text and bytes."""
        # Exactly these types, as upstream: a subclass may have another text of its own.
        if type(input) is bytes:
            return input
        if type(input) in (str, int, float, complex):
            return str(input).encode()
        raise TypeError(f"IdentitySerDe takes numbers, text and bytes, not {type(input).__name__}")

    def deserialize(self, input_bytes: bytes) -> Any:  # noqa: ANN401 - as upstream's
        """A number if the payload reads as an int, float or complex, else text, else bytes.

        As with upstream's, a text of digits therefore becomes a number.
        """
        try:
            text = input_bytes.decode()
        except UnicodeDecodeError:
            return input_bytes
        if text[-1:] in NO_NUMBERS_END:
            return text
        # From the narrowest on: every int is a float, too.
        for number in (int, float, complex):
            try:
                return number(text)
            except ValueError:
                continue
        return text


class SecretsProvider:
    """Provides the secrets of functions, which ``Context.get_secret`` returns."""

    def init(self, config: Mapping[str, Any]) -> None:
        """Initialize the provider with the worker's setting ``secrets_provider_config``."""

    def provide_secret(self, secret_name: str, path_to_secret: Any) -> str | None:  # noqa: ANN401
        """The secret with this name.

        ``path_to_secret`` is the value that the config of the function has for it.
        """
        raise NotImplementedError


class ClearTextSecretsProvider(SecretsProvider):
    """The default provider: the secret itself is in the config of the function."""

    def provide_secret(self, secret_name: str, path_to_secret: Any) -> str | None:  # noqa: ANN401
        """As ``SecretsProvider.provide_secret``."""
        del secret_name
        return path_to_secret  # type: ignore[no-any-return]  # any JSON


class EnvironmentBasedSecretsProvider(SecretsProvider):
    """A provider whose secrets are environment variables of the worker: instances inherit them."""

    def provide_secret(self, secret_name: str, path_to_secret: Any) -> str | None:  # noqa: ANN401
        """As ``SecretsProvider.provide_secret``."""
        del path_to_secret
        # In a process of its own the environment is the worker's without the variables of
        # ``GEMINGA_``.
        return os.environ.get(secret_name)


@dataclass(slots=True)
class Record:
    """What a source reads and a sink writes: a value with the attributes of its message."""

    value: Any
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    # In milliseconds since 1970.
    event_time_ms: int | None = None
    # For a sink: the topic of the message.
    topic: str | None = None
    # For a source: called once the record is stored, in the order in which records are stored.
    on_stored: Callable[[], object] | None = None


class Source:
    """Reads records from somewhere into a topic. Each method may be ``async def``."""

    def open(self, config: Mapping[str, Any], context: Any) -> Any:  # noqa: ANN401
        """Called once, before the first ``read``, with the source's configuration."""

    def read(self) -> Any:  # noqa: ANN401 - a Record or a value
        """Wait for the next ``Record``, or its bare value; None at the end of the source.

        An exception ends the instance, which its worker then starts again.
        """
        raise NotImplementedError

    def close(self) -> Any:  # noqa: ANN401 - an awaitable, perhaps
        """Called once, at the end."""


class Sink:
    """Writes the messages of topics to somewhere else. Each method may be ``async def``."""

    def open(self, config: Mapping[str, Any], context: Any) -> Any:  # noqa: ANN401
        """Called once, before the first ``write``, with the sink's configuration."""

    def write(self, record: Record) -> Any:  # noqa: ANN401 - an awaitable, perhaps
        """Write one record; its message is acknowledged when this returns.

        After an exception the message is delivered again.
        """
        raise NotImplementedError

    def close(self) -> Any:  # noqa: ANN401 - an awaitable, perhaps
        """Called once, at the end."""
