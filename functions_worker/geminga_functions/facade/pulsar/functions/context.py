"""``pulsar.functions.context``, as upstream has it."""

from geminga_functions.instance.context import Context

__all__ = ["Context"]
