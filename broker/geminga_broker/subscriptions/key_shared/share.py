"""What of a run of new entries one consumer of a Key_Shared subscription is to get. Pure."""

from __future__ import annotations

from geminga_broker.managed_ledger.positions import Entry


class Share:
    """``room`` is how many more messages can be sent; what comes beyond it will wait, as all of
    them where nothing ``is_wanted``."""

    __slots__ = ("entries", "is_wanted", "room")

    def __init__(self, room: int) -> None:
        self.entries: list[Entry] = []
        self.room = room
        self.is_wanted = room > 0
