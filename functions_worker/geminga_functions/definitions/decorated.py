"""The definition that a function has in its source, by ``@geminga_functions.function``.

It completes the config of the function. It is read from the text of the module, without running it:
a client that creates a function need not have what the module imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from geminga_functions.api import Definition, definition_of, function
from geminga_functions.definitions.functions import INPUTS
from geminga_functions.definitions.members import Config
from geminga_functions.errors import InvalidDefinition

Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
PACKAGE = "geminga_functions"


def with_definition(config: Config, definition: Definition) -> Config:
    """Complete ``config`` with the definition; what the config has takes precedence."""
    inputs = {} if any(map(config.get, INPUTS)) else {"inputs": list(definition.inputs)}
    # None means that the decorator does not mention the topic, an empty text that there is none.
    topics = {"output": definition.output, "logTopic": definition.log_topic}
    said = {member: topic for member, topic in topics.items() if topic is not None}
    return dict[str, Any](definition.settings) | said | inputs | config


def read_definition(text: str, module: str, config: Config) -> Config:
    """Complete ``config`` with the definition of a function in the ``text`` of ``module``.

    The function is the one that ``className`` names (``module.function``, or the module alone for
    its ``process``); without a ``className``, the only decorated one. If there is none, the config
    is returned unchanged.

    Raises ``InvalidDefinition`` if several functions may be meant, if the text is not Python, or if
    an argument of the decorator has no name (``**MAPPING``) or is not a literal, since its value
    would be known only at run time.
    """
    try:
        # Parsed, never run: the module may import what this machine does not have.
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise InvalidDefinition(f"{module}.py is no Python: {error}") from None
    found = {each.name: call for each, call in _decorated(tree)}
    class_name = config.get("className")
    if class_name is None:
        # A guess could create the wrong function under the right name.
        if len(found) > 1:
            raise InvalidDefinition(
                f"{module}.py decorates {', '.join(sorted(found))}: say which one by --classname"
            )
        name = next(iter(found), "")
        class_name = module if name == "process" else f"{module}.{name}"
    else:
        outer, _, name = str(class_name).rpartition(".")
        # The name of a module alone stands for its function ``process``.
        if not outer and name == module:
            name = "process"
        elif outer != module:
            # The class is in another module of the package, whose text is not at hand.
            return config
    # It has no decorator: the config has to say all.
    if name not in found:
        return config
    definition = _definition(f"{module}.{name}", found[name], config)
    return with_definition({**config, "className": class_name}, definition)


def _decorated(tree: ast.Module) -> Iterator[tuple[Defined, ast.Call]]:
    """The decorated functions and classes of a module, each with the call of the decorator."""
    # By which names the module may call the decorator.
    names: set[str] = set()
    # The whole module, not its top alone: an import may stand in a ``try``.
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name == PACKAGE:
                    names.add(f"{each.asname or PACKAGE}.function")
        elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            for each in node.names:
                if each.name == "function":
                    names.add(each.asname or "function")
    # Only what the module itself defines: a function within a function has no name to load it by.
    for node in tree.body:
        if isinstance(node, Defined):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in names:
                    yield node, decorator


def _definition(name: str, call: ast.Call, config: Config) -> Definition:
    """The definition that the decorator makes of its arguments.

    Arguments that ``config`` overrides are left out: they need not be literals.
    """
    # By the names of the decorator's arguments, which differ for two members of the config.
    said = set(config)
    # Whichever member names inputs, the decorator's are not used.
    if any(map(config.get, INPUTS)):
        said.add("inputs")
    if "logTopic" in config:
        said.add("log_topic")
    values: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg in said:
            continue
        # ``**MAPPING``. Also a literal one is refused: each argument has a name by which the config
        # may override it.
        if keyword.arg is None:
            raise InvalidDefinition(
                f"the decorator of {name} has **{ast.unparse(keyword.value)}: write each of these "
                "arguments there by its name, NAME=VALUE, or give it as an option"
            )
        try:
            values[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:
            raise InvalidDefinition(
                f"{keyword.arg} of the decorator of {name} is no literal, but "
                f"{ast.unparse(keyword.value)}: write it out there, or give it as an option"
            ) from None
    # The decorator itself checks its arguments; what it decorates here is of no importance.
    try:
        made = definition_of(function(*map(ast.unparse, call.args), **values)(lambda: None))
    except TypeError as error:
        raise InvalidDefinition(f"the decorator of {name}: {error}") from None
    # The decorator has just set it.
    assert made is not None
    return made
