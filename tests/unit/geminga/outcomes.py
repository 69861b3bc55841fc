"""A send callback that keeps the outcomes of its messages."""

from __future__ import annotations

from geminga import ClientError, MessageId


class Outcomes:
    """What became of messages sent with a callback, in the order of the callbacks."""

    def __init__(self) -> None:
        self.ids: list[MessageId] = []
        self.errors: list[ClientError] = []

    def __call__(self, message_id: MessageId | None, error: ClientError | None) -> None:
        if message_id is not None:
            self.ids.append(message_id)
        else:
            assert error is not None
            self.errors.append(error)
