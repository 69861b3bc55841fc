"""Finds the user's code: functions, serdes and classes by the names that their metadata have."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import geminga_functions.api
from geminga_functions.api import SecretsProvider
from geminga_functions.errors import FunctionNotLoaded

# The `pulsar` module of functions that are written for the official client. It stands last: where
# the environment of the function has the official client, that one is imported.
FACADE = Path(geminga_functions.api.__file__).parent / "facade"
# Modules of upstream's instance, by which serdes and providers of secrets are named.
UPSTREAM_MODULES = {
    "serde": geminga_functions.api,
    "secretsprovider": geminga_functions.api,
    # As workers of upstream's have them in their configuration.
    "org.apache.pulsar.functions.secretsprovider": geminga_functions.api,
}


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


class Loader:
    """Imports the modules of one function.

    In a process of its own they are modules like any other. In a worker that runs several functions
    in threads each has its own modules, though their names be the same: they are known to the
    interpreter only while this loader imports, and code that imports one of them later, when it is
    called, does not find it.
    """

    # Imports of several functions must not see each other's modules.
    _turn: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, import_paths: Sequence[Path], *, is_alone: bool) -> None:
        self._paths = [str(path) for path in import_paths]
        self._is_alone = is_alone
        self._modules: dict[str, ModuleType] = {}
        if str(FACADE) not in sys.path:
            sys.path.append(str(FACADE))
        if is_alone:
            sys.path[:0] = self._paths

    def find(self, name: str) -> Any:  # noqa: ANN401 - the user's
        """What ``module.name`` names; a module, where there is no dot.

        Raises ``FunctionNotLoaded``, with what the user's module raised as the cause.
        """
        module_name, _, attribute = name.rpartition(".")
        if not module_name:
            return self._module(attribute)
        module = UPSTREAM_MODULES.get(module_name) or self._module(module_name)
        if hasattr(module, attribute):
            return getattr(module, attribute)
        raise FunctionNotLoaded(f"the module {module_name} has no {attribute!r}")

    def _module(self, name: str) -> ModuleType:
        try:
            if self._is_alone:
                return importlib.import_module(name)
            with self._turn:
                return self._import_apart(name)
        except BaseException as error:
            # SystemExit too: a module may call sys.exit while it is imported.
            if isinstance(error, KeyboardInterrupt):
                raise
            raise FunctionNotLoaded(f"the module {name} cannot be imported") from error

    def _import_apart(self, name: str) -> ModuleType:
        known = set(sys.modules)
        sys.modules.update(self._modules)
        sys.path[:0] = self._paths
        try:
            importlib.invalidate_caches()
            return importlib.import_module(name)
        finally:
            for path in self._paths:
                sys.path.remove(path)
            for added in set(sys.modules) - known:
                file = getattr(sys.modules[added], "__file__", None) or ""
                if any(file.startswith(path + os.sep) for path in self._paths):
                    self._modules[added] = sys.modules.pop(added)


def load_function(loader: Loader, class_name: str) -> UserFunction:
    """The function with this name: a class, a function, or a module with ``process``.

    A class is instantiated. Raises ``FunctionNotLoaded``.
    """
    found = loader.find(class_name)
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
    elif inspect.iscoroutinefunction(call):
        kind = CallKind.ASYNC
    return UserFunction(call, kind, takes_context=_positional(call) >= 2)


def load_secrets(loader: Loader, class_name: str, config: str) -> SecretsProvider:
    """The provider of secrets with this name, initialized with JSON. Raises
    ``FunctionNotLoaded``."""
    provider: SecretsProvider = instantiate(loader.find(class_name))
    try:
        provider.init(json.loads(config or "{}"))
    except Exception as error:
        raise FunctionNotLoaded(f"{class_name} cannot be initialized") from error
    return provider


def instantiate(found: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - user's
    """An object of the user's class. Raises ``FunctionNotLoaded``."""
    try:
        return found(*arguments)
    except Exception as error:
        raise FunctionNotLoaded(f"{found!r} cannot be instantiated") from error


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
