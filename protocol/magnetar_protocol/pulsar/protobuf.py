"""Protobuf at our border: its errors become ours, and what it does not check is checked."""

from __future__ import annotations

from typing import Protocol, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from magnetar_protocol.errors import WireError

_MessageT = TypeVar("_MessageT", bound=Message)


class _Initializable(Protocol):
    """What every message has and the published stubs leave out."""

    def FindInitializationErrors(self) -> list[str]:  # noqa: N802  # protobuf's name
        ...


def parse_message(kind: type[_MessageT], encoded: bytes) -> _MessageT:
    """Parse ``encoded`` as a ``kind``; raises ``WireError`` also for missing required fields."""
    try:
        message = kind.FromString(encoded)
    except DecodeError as error:
        raise WireError(f"not a {kind.__name__}: {error}") from error
    if not message.IsInitialized():
        raise WireError(f"a {kind.__name__} lacks {', '.join(missing_fields(message))}")
    return message


def missing_fields(message: Message) -> tuple[str, ...]:
    """The required fields that ``message`` lacks, as dotted names."""
    return tuple(cast(_Initializable, message).FindInitializationErrors())
