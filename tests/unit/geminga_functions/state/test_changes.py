"""Proves that changes which wait on a state look as if they were made, and are applied once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_functions.instance.state import MemoryState
from geminga_functions.state.changes import Changes

Step = tuple[str, str, int]
steps_lists = st.lists(
    st.tuples(
        st.sampled_from(["put", "increment", "delete", "succeed", "fail", "together"]),
        st.sampled_from("ab"),
        st.integers(-3, 3),
    ),
    max_size=40,
)


class Plain:
    """What values and counters are, without any waiting."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.counters: dict[str, int] = {}

    def change(self, what: str, key: str, number: int) -> None:
        if what == "put":
            self.values[key] = b"%d" % number
        elif what == "increment":
            self.counters[key] = self.counters.get(key, 0) + number
        else:
            self.values.pop(key, None)
            self.counters.pop(key, None)

    def copy(self) -> Plain:
        copied = Plain()
        copied.values, copied.counters = dict(self.values), dict(self.counters)
        return copied


def change(changes: Changes, what: str, key: str, number: int) -> None:
    if what == "put":
        changes.put(key, b"%d" % number)
    elif what == "increment":
        changes.increment(key, number)
    else:
        changes.delete(key)


@given(steps_lists)
def test_only_messages_that_succeed_change_the_state(steps: list[Step]) -> None:
    """Messages change what stands together with others, which is applied to the state at times."""
    state = MemoryState()
    together = Changes(state)
    message = Changes(together)
    kept = Plain()
    shown = kept.copy()
    for what, key, number in steps:
        match what:
            case "succeed":
                together.apply(message)
                message, kept = Changes(together), shown.copy()
            case "fail":
                message, shown = Changes(together), kept.copy()
            case "together":
                state.apply(together)
                together = Changes(state)
                message, shown = Changes(together), kept.copy()
            case _:
                change(message, what, key, number)
                shown.change(what, key, number)
        for each in "ab":
            assert message.get(each) == shown.values.get(each)
            assert message.sum_of(each) == shown.counters.get(each)
            assert together.get(each) == kept.values.get(each)
            assert together.sum_of(each) == kept.counters.get(each)
