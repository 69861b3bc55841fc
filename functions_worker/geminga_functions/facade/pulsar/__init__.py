"""What functions import of the official client's ``pulsar``, on Geminga's client.

It serves functions whose environment does not have the official client. It has what concerns
functions, and no client.
"""

from geminga_functions.api import Function, IdentitySerDe, PickleSerDe, SerDe
from geminga_functions.instance.context import Context, Result
from geminga_functions.instance.context import FunctionMessageId as MessageId

__all__ = [
    "Context",
    "Function",
    "IdentitySerDe",
    "MessageId",
    "PickleSerDe",
    "Result",
    "SerDe",
]
