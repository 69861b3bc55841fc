"""What the handlers of one subject's commands have in common.

A new command is a method of its group and a line in its ``handlers``; a new group is also named in
``connection``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from google.protobuf.message import Message

from geminga_broker.sessions.session import Session

Handler = Callable[[Any], None]
"""Takes the part of a command that has its fields (``CommandFlow``, ...)."""


class CommandGroup:
    """The handlers of some commands of one session, by the commands' types, and what they keep.

    A handler answers its command, or raises ``WireError`` where that ends the connection.
    """

    handlers: Mapping[int, Handler] = {}

    def __init__(self, session: Session) -> None:
        self._session = session

    def _task(
        self, work: Callable[[Any], Coroutine[Any, Any, None]], *, in_order_of: str = ""
    ) -> Handler:
        """The handler that runs ``work``, which answers the command, as a task.

        Commands with the same value of the field ``in_order_of`` run one after the other.
        """
        start = self._session.start

        def handle(command: Message) -> None:
            after = (in_order_of, getattr(command, in_order_of)) if in_order_of else None
            start(command, work(command), after=after)

        return handle

    def resumed(self) -> None:
        """The client takes what it is sent again."""

    def disconnected(self) -> None:
        """The connection is over."""
