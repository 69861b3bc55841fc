"""How a consumer wants the keys of a Key_Shared subscription shared (KeySharedMeta). Pure.

The sentences of the refusals are Pulsar's; clients show them.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_broker.errors import ConsumerBusy
from geminga_protocol.pulsar.enums import KeySharedMode

HashRange = tuple[int, int]
"""The first and the last hash of a range; both belong to it."""


@dataclass(frozen=True, slots=True)
class KeySharedPolicy:
    """The wishes of one consumer. All consumers of a subscription agree in mode and order."""

    mode: KeySharedMode = KeySharedMode.AUTO_SPLIT
    # Whether messages of a key may go to another consumer while this one still holds some.
    allows_out_of_order: bool = False
    # What the consumer asks for in STICKY mode.
    ranges: tuple[HashRange, ...] = ()

    def is_alike(self, other: KeySharedPolicy) -> bool:
        """Whether consumers with both policies can share a subscription."""
        return self.mode is other.mode and self.allows_out_of_order == other.allows_out_of_order

    def check_alike(self, active: KeySharedPolicy) -> None:
        """Raise ``ConsumerBusy`` unless this consumer can join those with ``active``."""
        if self.mode is not active.mode:
            raise ConsumerBusy(
                "Subscription is of different type. Active subscription key_shared mode of "
                f"'{active.mode.name}' is different than the connecting consumer's key_shared mode "
                f"'{self.mode.name}'."
            )
        # Both directions: one consumer that wants order would not get it beside one that does not.
        if active.allows_out_of_order and not self.allows_out_of_order:
            raise ConsumerBusy(
                "Subscription is of different type. Active subscription allows out of order "
                "delivery while the connecting consumer does not allow it."
            )
        if self.allows_out_of_order and not active.allows_out_of_order:
            raise ConsumerBusy(
                "Subscription is of different type. Active subscription does not allow out of "
                "order delivery while the connecting consumer allows it."
            )


AUTO_SPLIT = KeySharedPolicy()
