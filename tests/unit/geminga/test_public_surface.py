"""Proves that what ``geminga`` exports is whole: explained, with types, and without types that only
its inside knows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import FunctionType, ModuleType
from typing import get_args, get_origin, get_type_hints, is_typeddict

import geminga
import geminga.sync
from geminga import errors

CLASSES = [each for name in geminga.__all__ if isinstance(each := getattr(geminga, name), type)]
FUNCTIONS = [
    each for name in geminga.__all__ if isinstance(each := getattr(geminga, name), FunctionType)
]
# Their constructors are no business of users.
MADE_BY_A_CLIENT = {
    geminga.Client,
    geminga.Consumer,
    geminga.EntryProducer,
    geminga.EntryReader,
    geminga.Message,
    geminga.Producer,
    geminga.Reader,
    geminga.TableView,
}
# Types of our packages that stand in signatures without being exported, and why.
NOT_EXPORTED = {
    "geminga.message_ids.BatchAcks": "what the ids of one batch share; users hand it back as it is",
    "geminga_protocol.pulsar.api_pb2.MessageMetadata": "what a producer says, as it is stored",
    "geminga_runtime.clock.Clock": "a seam for tests and simulations",
    "geminga_runtime.network.Network": "a seam for tests and simulations",
}


def functions(kind: type) -> Iterator[tuple[str, FunctionType]]:
    """The public methods and properties of a class, and its constructor if we wrote it."""
    for name, member in inspect.getmembers_static(kind):
        each: object = member.fget if isinstance(member, property) else member
        each = getattr(each, "__func__", each)  # of a class method
        if not isinstance(each, FunctionType) or not str(each.__module__).startswith("geminga"):
            continue
        is_constructor = name == "__init__" and not is_dataclass(kind)
        if not name.startswith("_") or (is_constructor and kind not in MADE_BY_A_CLIENT):
            yield f"{kind.__name__}.{name}", each


def hints() -> Iterator[tuple[str, object]]:
    """The type of every field, parameter and answer of what is exported."""
    for each in FUNCTIONS:
        for hint in get_type_hints(each).values():
            yield each.__name__, hint
    for kind in CLASSES:
        for name, hint in get_type_hints(kind).items():
            yield f"{kind.__name__}.{name}", hint
        for where, function in functions(kind):
            for hint in get_type_hints(function).values():
                yield where, hint
    yield "SendCallback", geminga.SendCallback


def classes_in(hint: object) -> Iterator[type]:
    """The classes that a type is made of, however deep."""
    if isinstance(hint, list):  # the parameters of a Callable
        for each in hint:
            yield from classes_in(each)
    elif arguments := get_args(hint):
        yield from classes_in(get_origin(hint))
        for each in arguments:
            yield from classes_in(each)
    elif isinstance(hint, type):
        yield hint


def test_all_that_is_public_is_exported_and_nothing_else() -> None:
    public = {
        name
        for name, each in vars(geminga).items()
        if not name.startswith("_") and not isinstance(each, ModuleType) and name != "annotations"
    }
    assert public == set(geminga.__all__)


def test_every_error_is_exported() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    ours = [each for each in kinds if issubclass(each, geminga.GemingaError)]
    assert len(ours) > 20
    assert [each for each in ours if each not in CLASSES] == []


def test_every_class_and_its_public_members_are_explained() -> None:
    explained: list[tuple[str, object]] = [(kind.__name__, kind) for kind in CLASSES]
    explained += [each for kind in CLASSES for each in functions(kind)]
    explained += [(each.__name__, each) for each in FUNCTIONS]
    found = [name for name, each in explained if not inspect.getdoc(each)]
    assert [name for name in found if not name.endswith(".__init__")] == []


def test_names_that_are_no_classes_and_functions_are_explained_with_the_package() -> None:
    others = [each for each in geminga.__all__ if not callable_with_a_text(each)]
    assert {"EARLIEST", "Router", "TopicsMode"} <= set(others)
    assert [each for each in others if f"``{each}``" not in (geminga.__doc__ or "")] == []


def callable_with_a_text(name: str) -> bool:
    return isinstance(getattr(geminga, name), type | FunctionType)


def test_every_field_and_option_is_explained_with_its_class() -> None:
    fields: list[tuple[type, str]] = []
    for kind in CLASSES:
        if is_dataclass(kind) or is_typeddict(kind) or hasattr(kind, "_fields"):
            fields += [(kind, name) for name in vars(kind).get("__annotations__", {})]
    assert (geminga.ConsumerOptions, "ack_timeout_s") in fields
    assert [
        (kind.__name__, name) for kind, name in fields if f"``{name}``" not in (kind.__doc__ or "")
    ] == []


def test_the_synchronous_client_is_explained_too() -> None:
    kinds = [getattr(geminga.sync, name) for name in geminga.sync.__all__]
    classes = [each for each in kinds if isinstance(each, type)]
    assert len(classes) == 5
    explained: list[tuple[str, object]] = [(each.__name__, each) for each in kinds]
    explained += [each for kind in classes for each in functions(kind)]
    found = [name for name, each in explained if not inspect.getdoc(each)]
    assert [name for name in found if not name.endswith(".__init__")] == []


def test_every_signature_is_typed() -> None:
    untyped = [
        where
        for kind in CLASSES
        for where, function in functions(kind)
        for each in inspect.signature(function).parameters.values()
        if each.name not in ("self", "cls") and each.annotation is each.empty
    ]
    untyped += [
        where
        for kind in CLASSES
        for where, function in functions(kind)
        if "return" not in function.__annotations__
    ]
    assert untyped == []


def test_no_signature_names_a_type_that_is_not_exported() -> None:
    inside = {
        f"{kind.__module__}.{kind.__qualname__}": where
        for where, hint in hints()
        for kind in classes_in(hint)
        if kind.__module__.startswith("geminga") and kind not in CLASSES
    }
    assert {name: where for name, where in inside.items() if name not in NOT_EXPORTED} == {}
    assert NOT_EXPORTED.keys() - inside.keys() == set(), "exceptions that nothing needs"


def test_methods_properties_fields_and_constructors_are_looked_at() -> None:
    seen = {where for where, _ in hints()}
    assert seen >= {"connect", "Client.producer", "Producer.partitions", "ProducerOptions.name"}
    assert "Producer.__init__" not in seen


def test_all_that_is_opened_can_be_entered_and_all_that_is_received_iterated() -> None:
    opened = MADE_BY_A_CLIENT - {geminga.Message}
    assert {each for each in opened if hasattr(each, "__aenter__")} == opened
    assert {each for each in opened if hasattr(each, "__aiter__")} == {
        geminga.Consumer,
        geminga.Reader,
        geminga.TableView,
    }
