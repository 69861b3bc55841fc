"""Loads the user's code: functions, serdes and classes, by the names that the metadata give."""

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

# The `pulsar` module for functions that are written for the official client. It comes last on the
# path: if the environment of the function has the official client, that one is imported.
FACADE = Path(geminga_functions.api.__file__).parent / "facade"
# Modules of upstream's instance, which metadata name for built-in serdes and secrets providers.
UPSTREAM_MODULES = {
    "serde": geminga_functions.api,
    "secretsprovider": geminga_functions.api,
    # The name in the configuration of upstream's workers.
    "org.apache.pulsar.functions.secretsprovider": geminga_functions.api,
}


class CallKind(Enum):
    """How a function is called."""

    PLAIN = "plain"  # in the thread of the user's code
    ASYNC = "async"  # on the loop, several at a time
    ASYNC_GENERATOR = "async generator"  # on the loop; each value it yields is an output


@dataclass(frozen=True, slots=True)
class UserFunction:
    """The function as an instance calls it: with the input, and with the context if it takes it."""

    call: Callable[..., Any]
    kind: CallKind
    takes_context: bool


class Loader:
    """Imports the modules of one function.

    ``is_alone`` says that the process belongs to this function: its modules are then imported like
    any others. In a worker that runs several functions in threads, two of them may have different
    modules of the same name. So the interpreter knows a function's modules only while its loader
    imports; code that imports one of them later, when it is called, does not find it.
    """

    # Held while a module is imported: imports of several functions must not see each other's.
    _turn: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, import_paths: Sequence[Path], *, is_alone: bool) -> None:
        self._paths = [str(path) for path in import_paths]
        self._is_alone = is_alone
        # The function's modules by name, taken out of sys.modules; unused if it is alone.
        self._modules: dict[str, ModuleType] = {}
        # Once for all instances of a worker's threads.
        if str(FACADE) not in sys.path:
            sys.path.append(str(FACADE))
        if is_alone:
            # Before everything else, as ``python script.py`` has the script's folder: the
            # function's modules win over those of the environment.
            sys.path[:0] = self._paths

    def find(self, name: str) -> Any:  # noqa: ANN401 - the user's
        """The object with the dotted name ``module.name``; without a dot it is a module.

        Raises ``FunctionNotLoaded``; its cause is the error that the user's module raised.
        """
        module_name, _, attribute = name.rpartition(".")
        if not module_name:
            return self._module(attribute)
        # The names of upstream first: no package can replace them.
        module = UPSTREAM_MODULES.get(module_name) or self._module(module_name)
        if hasattr(module, attribute):
            return getattr(module, attribute)
        raise FunctionNotLoaded(f"the module {module_name} has no {attribute!r}")

    def _module(self, name: str) -> ModuleType:
        try:
            if self._is_alone:
                return importlib.import_module(name)
            # It blocks a thread of one instance while another instance imports, never the worker's
            # loop: an instance in a thread has a loop of its own.
            with self._turn:
                return self._import_apart(name)
        except BaseException as error:
            # SystemExit is caught too: a module may call sys.exit while it is imported.
            if isinstance(error, KeyboardInterrupt):
                raise
            raise FunctionNotLoaded(f"the module {name} cannot be imported") from error

    def _import_apart(self, name: str) -> ModuleType:
        """Import a module so that other functions do not find it, nor what it imports."""
        # While the lock is held, the interpreter sees this function's modules and folders;
        # everything is put back before the lock is released, whatever the import raises.
        known = set(sys.modules)
        sys.modules.update(self._modules)
        sys.path[:0] = self._paths
        try:
            # The package may have been unpacked a moment ago: finders remember what a folder
            # contained.
            importlib.invalidate_caches()
            return importlib.import_module(name)
        finally:
            for path in self._paths:
                sys.path.remove(path)
            # Only what came from the function's folders: modules of the worker's environment that
            # were imported besides are shared by all.
            for added in set(sys.modules) - known:
                file = getattr(sys.modules[added], "__file__", None) or ""
                if any(file.startswith(path + os.sep) for path in self._paths):
                    self._modules[added] = sys.modules.pop(added)


def load_function(loader: Loader, class_name: str) -> UserFunction:
    """Load the function with this name: a class, a function, or a module with ``process``.

    A class is instantiated, and its method ``process`` is the function. Raises
    ``FunctionNotLoaded``.
    """
    found = loader.find(class_name)
    if isinstance(found, ModuleType):
        if not hasattr(found, "process"):
            raise FunctionNotLoaded(f"the module {class_name} has no function 'process'")
        # A module stands for its function ``process``, as with upstream.
        found = found.process
    if isinstance(found, type):
        found = instantiate(found)
    call = getattr(found, "process", found)
    if not callable(call):
        raise FunctionNotLoaded(f"{class_name} is no function, and has no method 'process'")
    # A plain generator function counts as plain: its result is the generator itself, and fails its
    # message, since neither a serde nor a built-in schema takes it.
    kind = CallKind.PLAIN
    if inspect.isasyncgenfunction(call):
        kind = CallKind.ASYNC_GENERATOR
    elif inspect.iscoroutinefunction(call):
        kind = CallKind.ASYNC
    return UserFunction(call, kind, takes_context=_takes_context(call))


def load_secrets(loader: Loader, class_name: str, config: str) -> SecretsProvider:
    """Load the secrets provider with this name, and initialize it with the JSON ``config``.

    Raises ``FunctionNotLoaded``.
    """
    provider: SecretsProvider = instantiate(loader.find(class_name))
    try:
        # Once, before any function of the instance runs: ``get_secret`` may be called at any time.
        provider.init(json.loads(config or "{}"))
    except Exception as error:
        raise FunctionNotLoaded(f"{class_name} cannot be initialized") from error
    return provider


def instantiate(found: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - user's
    """Create an object of the user's class. Raises ``FunctionNotLoaded``."""
    try:
        return found(*arguments)
    except Exception as error:
        raise FunctionNotLoaded(f"{found!r} cannot be instantiated") from error


def _takes_context(call: Callable[..., Any]) -> bool:
    """Whether a function takes two positional arguments: the input and the context."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # of a builtin, which has no signature
        return False
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return True
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional for each in parameters) >= 2
