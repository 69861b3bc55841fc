"""``pulsar.functions.function``, as upstream has it."""

from geminga_functions.api import Function

__all__ = ["Function"]
