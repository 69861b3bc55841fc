"""``pulsar.functions.serde``, as upstream has it."""

from geminga_functions.api import IdentitySerDe, PickleSerDe, SerDe

__all__ = ["IdentitySerDe", "PickleSerDe", "SerDe"]
