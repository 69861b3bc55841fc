"""What the handlers of one subject's commands have in common.

A new command is a method of its group and a line in the group's table ``handlers``. A new group is
also named in ``GROUPS`` of ``connection``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from google.protobuf.message import Message

from geminga_broker.sessions.session import Session

# A method of a group that takes the part of a command that has its fields (``CommandFlow``, ...).
# It answers the command, or raises ``WireError`` where that ends the connection. It runs in the
# turn of the read: whatever waits is started as a task.
Handler = Callable[[Any, Any], None]
# Handlers by the types of their commands.
Handlers = Mapping[int, Handler]


@dataclass(slots=True, eq=False)
class CommandGroup:
    """Handles some commands of one session, and keeps what they are about."""

    # A table of the class, not of the object: a broker has thousands of connections, on most of
    # which nothing happens, and bound methods would cost each of them some kilobytes.
    handlers: ClassVar[Handlers] = {}

    session: Session

    def disconnected(self) -> None:
        """The connection is over; no command comes after this."""


def as_task(
    work: Callable[[Any, Any], Coroutine[Any, Any, None]], *, in_order_of: str = ""
) -> Handler:
    """The handler that runs ``work``, a method that answers the command, as a task.

    Commands with the same value of the field ``in_order_of`` run one after the other. An error that
    ``work`` raises is answered in the form that the command's clients expect (``Requests.start``).
    """

    def handle(group: CommandGroup, command: Message) -> None:
        # With the name of the field: a producer and a consumer may have the same id.
        after = (in_order_of, getattr(command, in_order_of)) if in_order_of else None
        group.session.start(command, work(group, command), after=after)

    return handle
