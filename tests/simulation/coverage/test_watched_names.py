"""What the long surveys watch has the names of today: they run late, these tests at once."""

from __future__ import annotations

from collections import defaultdict
from inspect import Parameter, signature
from pathlib import PurePosixPath

from tests.project_files import sources, text_of
from tests.simulation.coverage.overflows import PLACES, Overflow, counting_overflows
from tests.simulation.coverage.sometimes import RARE_EVENTS, counting
from tests.simulation.stories import tell_story

from geminga_scenarios.seed_run import RunOptions


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


def test_judges_find_what_they_read() -> None:
    """A judge that fails fails the seed: those that one seed of three stories asks are sound."""
    asked: set[Overflow] = set()
    for name in ("ledgers", "cluster", "messaging"):
        with counting_overflows() as full:
            result = tell_story(name, 0, RunOptions())
        assert result.failure is None
        asked |= full.keys()
    # These are asked too seldom, and read nothing of a part but, the last, one attribute.
    seldom = {Overflow.SECOND_JOURNAL, Overflow.TRANSPORT, Overflow.CACHE, Overflow.FETCHED}
    assert set(Overflow) - asked <= seldom | {Overflow.WINDOW}


def test_every_rare_event_is_logged_by_a_module_of_that_name() -> None:
    # What replication comes to is counted by methods, not by events.
    events = {each for found in RARE_EVENTS.values() for each in found if each[0] != "replication"}
    texts: dict[str, str] = defaultdict(str)
    for name in sources():
        texts[PurePosixPath(name).stem] += text_of(name)
    assert not [event for event in events if f'"{event[1]}"' not in texts[event[0]]]
