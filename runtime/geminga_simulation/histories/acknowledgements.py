"""Whether a subscription remembered its acknowledgements: a message whose acknowledgement was
confirmed must not be sent again, however much later, by any broker, to any consumer.

An object in the sense of ``linearizability``: its state is the set of acknowledged messages, each
operation takes effect at one instant, and a delivery, which takes effect when the broker sends the
message, needs one at which the message is not acknowledged. An outside observer does not see a
broker send, so a delivery comes with the latest moment that it certainly was sent after; a message
that was on its way when the acknowledgement was confirmed is no mistake. Because deliveries change
nothing, each can be judged alone when it comes, in constant time unless the subscription was moved.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Generic

from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.log import PositionT

# Deliveries named in an error; more of them tell no more.
DELIVERIES_NAMED_MAX = 4


@dataclass(slots=True, eq=False)
class Asked(Generic[PositionT]):
    """``client`` asked for an acknowledgement, or for the subscription to be moved. Without an
    answer ``returned_s`` is infinite: it may take effect at any time, or never."""

    client: str
    # The request in words, for errors.
    what: str
    called_s: float
    # Everything up to here, or before it, is acknowledged; None: nothing but what is named.
    up_to: PositionT | None = None
    is_inclusive: bool = True
    returned_s: float = inf
    # What brought the answer, in the order of answers and deliveries there.
    stream: Hashable = None

    def covers(self, item: PositionT) -> bool:
        """Whether ``item`` lies in what is acknowledged up to a position."""
        return self.up_to is not None and (
            item < self.up_to or (self.is_inclusive and item == self.up_to)
        )

    def __str__(self) -> str:
        end = "no answer" if self.returned_s == inf else f"{self.returned_s:.6f}"
        return f"{self.client} [{self.called_s:.6f}, {end}] {self.what}"


@dataclass(slots=True)
class AcknowledgementHistory(Generic[PositionT]):
    """What the clients of one subscription acknowledged and were sent.

    Items are positions: of an entry, or of each message of a batch. ``deliver`` is called when the
    message arrives, after ``confirm`` for everything that its stream brought before.
    """

    # Acknowledgements of single items, confirmed or not.
    _named: dict[PositionT, list[Asked[PositionT]]] = field(
        default_factory=dict[PositionT, "list[Asked[PositionT]]"]
    )
    # Confirmed acknowledgements of everything up to a position, and the furthest of them.
    _up_to: list[Asked[PositionT]] = field(default_factory=list["Asked[PositionT]"])
    _furthest: PositionT | None = None
    _moves: list[Asked[PositionT]] = field(default_factory=list["Asked[PositionT]"])
    # Mistakes, as they were found.
    _wrong: list[str] = field(default_factory=list[str])

    def acknowledge(
        self, client: str, items: Collection[PositionT], called_s: float
    ) -> Asked[PositionT]:
        """``client`` acknowledges single messages."""
        asked = Asked[PositionT](client, "acknowledged it", called_s)
        for item in items:
            self._named.setdefault(item, []).append(asked)
        return asked

    def acknowledge_up_to(
        self, client: str, position: PositionT, called_s: float
    ) -> Asked[PositionT]:
        """``client`` acknowledges everything up to ``position``."""
        return Asked(client, f"acknowledged all up to {position}", called_s, position)

    def move(self, client: str, position: PositionT | None, called_s: float) -> Asked[PositionT]:
        """``client`` moves the subscription: what lies before ``position`` is acknowledged then,
        and nothing else. None: any message may come again, and any may not, as after a seek to a
        time, or where the subscription is made anew."""
        asked = Asked(client, f"moved it to {position}", called_s, position, is_inclusive=False)
        # A move without an answer counts as well: it may take effect at any time.
        self._moves.append(asked)
        return asked

    def confirm(
        self, asked: Asked[PositionT], returned_s: float, *, stream: Hashable = None
    ) -> None:
        """The answer came, on ``stream``: the request is done."""
        # What was asked for single items is found by ``_named``; only the rest is gathered here.
        # The same object stands in ``_named`` or ``_moves``: its answer is seen there.
        asked.returned_s, asked.stream = returned_s, stream
        position = asked.up_to
        if position is not None:
            self._up_to.append(asked)
            if self._furthest is None or self._furthest < position:
                self._furthest = position

    def deliver(
        self,
        client: str,
        item: PositionT,
        *,
        sent_after_s: float,
        arrived_s: float,
        stream: Hashable = None,
    ) -> None:
        """``client`` was sent ``item`` on ``stream``, and not before ``sent_after_s``: at the
        earliest when a request was made whose answer the stream brought before."""
        # All confirmed requests that acknowledge the item. Most deliveries are of items beyond the
        # furthest one: they need no walk through the list.
        settlements = [asked for asked in self._named.get(item, ()) if asked.returned_s < inf]
        if self._furthest is not None and not self._furthest < item:
            settlements += (asked for asked in self._up_to if asked.covers(item))
        for settled in settlements:
            # Confirmed before the message was sent: by the clock, or because the stream, which
            # keeps its order, brought the confirmation first.
            is_before = settled.returned_s < sent_after_s or (
                stream is not None and settled.stream == stream
            )
            if not is_before:
                continue
            # A move in between may have the item delivered again. It may have taken effect between
            # the acknowledgement and the sending, by the times that are known; a move that
            # acknowledges the item itself does not bring it back.
            was_moved = any(
                not move.covers(item)
                and move.called_s <= arrived_s
                and settled.called_s <= move.returned_s
                for move in self._moves
                if move is not settled
            )
            if not was_moved:
                self._wrong.append(
                    f"{client} was sent {item} after {sent_after_s:.6f}, and got it at"
                    f" {arrived_s:.6f}, when that was settled: {settled}"
                )
                # One mistake for each delivery, however many requests had settled the message.
                return

    def check(self) -> None:
        """Raise ``InvariantViolated`` where a message came again that was settled."""
        if self._wrong:
            named = "\n  ".join(self._wrong[:DELIVERIES_NAMED_MAX])
            raise InvariantViolated(f"{len(self._wrong)} came again:\n  {named}")
