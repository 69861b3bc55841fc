"""The part of the official client's ``pulsar`` that functions import, based on Geminga's client.

It serves functions whose environment lacks the official client. It contains no client.
"""

from geminga_functions.api import Function, IdentitySerDe, PickleSerDe, SerDe
from geminga_functions.instance.context import Context
from geminga_functions.instance.services import FunctionMessageId as MessageId
from geminga_functions.instance.services import Result

__all__ = [
    "Context",
    "Function",
    "IdentitySerDe",
    "MessageId",
    "PickleSerDe",
    "Result",
    "SerDe",
]
