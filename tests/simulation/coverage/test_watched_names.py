"""What the long surveys watch has the names of today: they run late, these tests at once."""

from __future__ import annotations

import ast
from inspect import Parameter, signature
from pathlib import PurePosixPath

from tests.project_files import sources, tree_of
from tests.simulation.coverage.overflows import PLACES, counting_overflows
from tests.simulation.coverage.sometimes import RARE_EVENTS, counting


def test_every_method_that_is_watched_exists_and_is_put_back() -> None:
    methods = [getattr(owner, method) for _, owner, method, _ in PLACES]
    with counting_overflows() as full, counting() as rare:
        watched = [getattr(owner, method) for _, owner, method, _ in PLACES]
    assert not any(full.values())
    assert not any(rare.values())
    assert all(one is not other for one, other in zip(methods, watched, strict=True))
    assert methods == [getattr(owner, method) for _, owner, method, _ in PLACES]


def test_every_judge_takes_what_its_method_is_called_with_and_what_comes_of_it() -> None:
    for _, owner, method, is_full in PLACES:
        arguments = signature(getattr(owner, method)).parameters
        if not any(each.kind is Parameter.VAR_POSITIONAL for each in arguments.values()):
            signature(is_full).bind(*arguments, "what comes of it")


def test_every_rare_event_is_logged_by_a_module_of_that_name() -> None:
    logged = {
        (PurePosixPath(name).stem, node.value)
        for name in sources()
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    # What replication comes to is counted by methods, not by events.
    events = {each for found in RARE_EVENTS.values() for each in found if each[0] != "replication"}
    assert not events - logged
