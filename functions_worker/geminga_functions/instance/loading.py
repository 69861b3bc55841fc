"""Finds the user's code: functions, serdes and classes by the names that their metadata have."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import geminga_functions.api
from geminga_functions.errors import FunctionNotLoaded

# The `pulsar` module of functions that are written for the official client. It stands last: where
# the environment of the function has the official client, that one is imported.
FACADE = Path(geminga_functions.api.__file__).parent / "facade"
# Modules of upstream's instance, by which serdes are named: `serde.IdentitySerDe`.
UPSTREAM_MODULES = {"serde": geminga_functions.api}


class CallKind(Enum):
    """How a function is called."""

    PLAIN = "plain"  # in the thread of the user's code
    ASYNC = "async"  # on the loop, several at a time
    ASYNC_GENERATOR = "async generator"  # on the loop; each value it yields is an output


@dataclass(frozen=True, slots=True)
class UserFunction:
    """The function as an instance calls it: with the input, and the context if it takes one."""

    call: Callable[..., Any]
    kind: CallKind
    takes_context: bool


def prepare_path(import_paths: Sequence[Path]) -> None:
    """Make the function's own modules come first, and the ``pulsar`` facade last."""
    sys.path[:0] = [str(path) for path in import_paths if str(path) not in sys.path]
    if str(FACADE) not in sys.path:
        sys.path.append(str(FACADE))


def load_function(class_name: str) -> UserFunction:
    """The function with this name: a class, a function, or a module with ``process``.

    A class is instantiated. Raises ``FunctionNotLoaded``.
    """
    found = find(class_name)
    if isinstance(found, ModuleType):
        if not hasattr(found, "process"):
            raise FunctionNotLoaded(f"the module {class_name} has no function 'process'")
        found = found.process
    if isinstance(found, type):
        found = instantiate(found)
    call = getattr(found, "process", found)
    if not callable(call):
        raise FunctionNotLoaded(f"{class_name} is no function, and has no method 'process'")
    kind = CallKind.PLAIN
    if inspect.isasyncgenfunction(call):
        kind = CallKind.ASYNC_GENERATOR
    elif asyncio.iscoroutinefunction(call):
        kind = CallKind.ASYNC
    return UserFunction(call, kind, takes_context=_positional(call) >= 2)


def instantiate(found: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - user's
    """An object of the user's class. Raises ``FunctionNotLoaded``."""
    try:
        return found(*arguments)
    except Exception as error:
        raise FunctionNotLoaded(f"{found!r} cannot be instantiated") from error


def find(name: str) -> Any:  # noqa: ANN401 - the user's
    """What ``module.name`` names; a module, where the whole name is one's.

    Raises ``FunctionNotLoaded``, with what the user's module raised as the cause.
    """
    module_name, _, attribute = name.rpartition(".")
    if not module_name:
        return _module(attribute)
    module = UPSTREAM_MODULES.get(module_name) or _module(module_name)
    if hasattr(module, attribute):
        return getattr(module, attribute)
    raise FunctionNotLoaded(f"the module {module_name} has no {attribute!r}")


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except BaseException as error:
        # SystemExit too: a module may call sys.exit while it is imported.
        if isinstance(error, KeyboardInterrupt):
            raise
        raise FunctionNotLoaded(f"the module {name} cannot be imported") from error


def _positional(call: Callable[..., Any]) -> int:
    """How many positional arguments may be given."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # of a builtin, which has no signature
        return 1
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return 2
    return sum(
        each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters
    )
