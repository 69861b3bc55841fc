"""Messages of our own control channels: msgpack in frames, versioned, bounded, checked.

Only values and bytes; ``geminga_server.control`` carries them between the supervisor and the parts.
Other channels (a function's process, test servers) declare their own messages and use the same
``MessageCodec`` and ``MessageReader``.

A message is a frozen dataclass whose fields are ``bool``, ``int``, ``float``, ``str``, ``bytes`` or
``Mapping[str, str]``. A peer may be older or newer than we are: fields it adds are ignored, a field
it lacks takes its default, and a kind it made up becomes ``UnknownMessage``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, cast, get_type_hints

import msgpack

from geminga_runtime.errors import GemingaError

# Of the layout below. Messages change without a new one: see the top of this module.
VERSION = 1
# The longest message in use is a part's list of addresses; this is a hundred times that.
MESSAGE_BYTES_MAX = 64 * 1024

# +------+---------+-------------------------------+
# | size | version | msgpack [kind, {field: value}] |      size counts what follows it
# | u32  |  u8     |                               |
# +------+---------+-------------------------------+
SIZE = struct.Struct(">I")
HEADER = struct.Struct(">IB")
assert HEADER.size == 5

# The types a field may have, by how its annotation resolves; a bool is not an int here.
PLAIN_TYPES: dict[object, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    # A caller may write 5 for 5.0, and msgpack keeps it a whole number.
    float: (float, int),
    str: (str,),
    bytes: (bytes,),
}


class ControlMessageError(GemingaError):
    """These bytes are no message of ours; the stream they came from cannot be trusted further."""

    code: ClassVar[str] = "ControlError"


@dataclass(frozen=True, slots=True)
class UnknownMessage:
    """A message of a kind that a newer peer knows and we do not: to be ignored."""

    kind: str


# Which message follows which:
#
#     part to supervisor        Hello first, once; Ready when it serves
#     supervisor to part        HealthRequest, answered by HealthAnswer with the same id
#                               Ping, answered by Pong; Drain, answered by Drained
#                               SetLogLevel and Fault, which are not answered
#     operator to supervisor    Instruction instead of Hello, answered by InstructionAnswer; then
#                               the supervisor ends the channel


@dataclass(frozen=True, slots=True)
class Hello:
    """Part to supervisor, first of all: who is speaking. ``version`` is the distribution's."""

    part: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True)
class Ready:
    """Part to supervisor: it serves. ``addresses`` by name, as ``pulsar`` or ``metrics``."""

    addresses: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HealthRequest:
    """Supervisor to part: does everything work?"""

    request_id: int


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """Part to supervisor: yes, or no and why."""

    request_id: int
    is_healthy: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ping:
    """Supervisor to part: does your event loop turn? Unlike health, it depends on no other part."""


@dataclass(frozen=True, slots=True)
class Pong:
    """Part to supervisor, at once: it does."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Supervisor to part: finish what is begun, take nothing new, within ``deadline_s``."""

    deadline_s: float


@dataclass(frozen=True, slots=True)
class Drained:
    """Part to supervisor: nothing is under way any more."""


@dataclass(frozen=True, slots=True)
class SetLogLevel:
    """Supervisor to part: log from this level on (``DEBUG``, ``INFO``, ``WARNING``, ``ERROR``)."""

    level: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Supervisor to part, in tests: misbehave in the way that ``name`` says."""

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Instruction:
    """Operator to supervisor, first and last of all: do ``action`` (``kill``) to ``part``."""

    action: str
    part: str = ""
    options: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class InstructionAnswer:
    """Supervisor to operator: the answer (JSON), or why the instruction is not carried out."""

    is_done: bool
    text: str = ""


class MessageCodec:
    """Turns messages of the given types into frames and back; the kind is the type's name."""

    def __init__(
        self, kinds: Sequence[type[Any]], *, message_bytes_max: int = MESSAGE_BYTES_MAX
    ) -> None:
        self.message_bytes_max = message_bytes_max
        self._kinds = {kind.__name__: kind for kind in kinds}
        assert len(self._kinds) == len(kinds), "two kinds of message have the same name"
        # The resolved types of each kind's fields. What a field may be is checked here, once.
        self._hints: dict[type[Any], dict[str, object]] = {}
        for kind in kinds:
            assert is_dataclass(kind)
            hints = get_type_hints(kind)
            types = self._hints[kind] = {one.name: hints[one.name] for one in fields(kind)}
            for name, hint in types.items():
                assert hint in PLAIN_TYPES or hint == Mapping[str, str], f"{kind.__name__}.{name}"

    def encode(self, message: object) -> bytes:
        """The whole frame. A message of another type or over the limit is our own mistake."""
        kind = type(message)
        hints = self._hints[kind]
        values = {name: getattr(message, name) for name in hints}
        # msgpack takes dictionaries only, not every mapping.
        values = {
            name: dict(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
        }
        # Values by name, not in order: either side may know fields that the other does not.
        body = cast("bytes", msgpack.packb([kind.__name__, values]))
        assert len(body) < self.message_bytes_max, f"{kind.__name__} takes {len(body)} bytes"
        # One more than the body: the size counts the version, too.
        return HEADER.pack(len(body) + 1, VERSION) + body

    def decode(self, body: bytes) -> object:
        """The message in ``body``, which is a frame without its size.

        Raises ``ControlMessageError`` and nothing else.
        """
        # Looked at before msgpack is: another version may have another form altogether.
        if not body or body[0] != VERSION:
            raise ControlMessageError(
                f"a control message of version {body[0] if body else 'none'}; we speak {VERSION}"
            )
        try:
            # Keys of any type are let through: one that names no field is ignored below.
            content: object = msgpack.unpackb(memoryview(body)[1:], strict_map_key=False)
        except Exception as error:  # msgpack raises many kinds of errors, RecursionError too
            raise ControlMessageError(f"a control message is not msgpack: {error}") from error
        match content:
            case [str(kind_name), dict(found)]:
                values = cast("dict[object, object]", found)
            case _:
                raise ControlMessageError("a control message is not [kind, fields]")
        kind = self._kinds.get(kind_name)
        if kind is None:
            # No error: the newer peer has to do without an answer.
            return UnknownMessage(kind_name)
        # Fields that only a newer peer knows are never looked at.
        known = {}
        for name, hint in self._hints[kind].items():
            if name not in values:
                continue  # it takes its default, or is the error below
            if not _fits(values[name], hint):
                raise ControlMessageError(f"{kind_name}.{name} cannot be {values[name]!r:.80}")
            known[name] = values[name]
        try:
            # The dataclass itself finds which fields are missing: those that have no default.
            return kind(**known)
        except TypeError as error:
            raise ControlMessageError(f"{kind_name} lacks a field: {error}") from error


@dataclass(slots=True, eq=False)
class MessageReader:
    """Cuts a byte stream into messages; keeps the bytes of an incomplete one."""

    codec: MessageCodec
    # The beginning of a message whose rest has not arrived; empty between two messages.
    unread: bytearray = field(default_factory=bytearray)

    def feed(self, chunk: bytes) -> list[object]:
        """The messages that ``chunk`` completes. Raises ``ControlMessageError``."""
        unread = self.unread
        unread += chunk
        messages: list[object] = []
        start = 0
        while len(unread) - start >= SIZE.size:
            (size,) = SIZE.unpack_from(unread, start)
            # Before the message has arrived: a stranger's bytes must not make us gather 4 GiB.
            if size > self.codec.message_bytes_max:
                raise ControlMessageError(
                    f"a control message of {size} bytes; "
                    f"at most {self.codec.message_bytes_max} are taken"
                )
            end = start + SIZE.size + size
            if end > len(unread):
                break
            # Copied: the buffer cannot be cut below while a view of it is held.
            messages.append(self.codec.decode(bytes(unread[start + SIZE.size : end])))
            start = end
        # Once for all messages of the chunk: deleting the front of a bytearray moves the rest.
        del unread[:start]
        return messages


def _fits(value: object, hint: object) -> bool:
    # ``type`` and not ``isinstance``: a bool is an int to Python, and no number to us.
    types = PLAIN_TYPES.get(hint)
    if types is not None:
        return type(value) in types
    return isinstance(value, dict) and all(
        type(key) is str and type(one) is str
        for key, one in cast("dict[object, object]", value).items()
    )


CONTROL = MessageCodec(
    [
        Hello,
        Ready,
        HealthRequest,
        HealthAnswer,
        Ping,
        Pong,
        Drain,
        Drained,
        SetLogLevel,
        Fault,
        Instruction,
        InstructionAnswer,
    ]
)
