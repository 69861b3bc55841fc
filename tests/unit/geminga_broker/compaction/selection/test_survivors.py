"""Proves which messages survive: the newest of every key with a value, whole, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.compaction.selection.entries import GONE, Chunk, Message
from geminga_broker.compaction.selection.survivors import NewestMessages

Entry = Sequence[Message] | None


def value(key: str | None) -> Message:
    return Message(key, has_value=True)


def deletion(key: str) -> Message:
    return Message(key, has_value=False)


def chunks(key: str | None, uuid: str, count: int, *indexes: int) -> list[list[Message]]:
    """The entries of a message in ``count`` chunks, of which only ``indexes`` come, or all."""
    return [
        [
            Message(
                key,
                has_value=True,
                chunk=Chunk(uuid, is_first=index == 0, is_last=index == count - 1),
            )
        ]
        for index in indexes or range(count)
    ]


def kept(*entries: Entry, retain_null_key: bool = False) -> list[list[bool]]:
    newest = NewestMessages(retain_null_key=retain_null_key)
    for entry in entries:
        newest.see(entry)
    survivors = newest.survivors()
    return [survivors.take(1 if entry is None else len(entry)) for entry in entries]


def test_the_newest_value_of_every_key_stays_wherever_it_is_in_a_batch() -> None:
    assert kept([value("a"), value("b")], [value("a")]) == [[False, True], [True]]


def test_an_empty_value_takes_its_key_and_itself() -> None:
    assert kept([value("a")], [deletion("a")], [value("b")]) == [[False], [False], [True]]


def test_a_key_that_comes_again_after_its_deletion_stays() -> None:
    assert kept([value("a")], [deletion("a")], [value("a")]) == [[False], [False], [True]]


def test_what_cannot_be_looked_into_and_what_is_told_to_stay_stays() -> None:
    assert kept(None, [value(None)]) == [[True], [False]]
    assert kept(None, [value(None)], retain_null_key=True) == [[True], [True]]


def test_what_was_compacted_out_before_is_no_message() -> None:
    newest = NewestMessages(retain_null_key=True)
    newest.see([GONE, value("a"), GONE])
    assert newest.removed == 0
    assert newest.survivors().take(3) == [False, True, False]


def test_removed_are_those_replaced_deletions_those_without_key_and_markers() -> None:
    newest = NewestMessages(retain_null_key=False)
    for entry in ([value("a"), value("a")], [deletion("b")], [value(None)], []):
        newest.see(entry)
    assert newest.removed == 4
    assert newest.survivors().take(4) == [False, True, False, False]


def test_a_message_stays_with_all_its_chunks_and_goes_with_them() -> None:
    whole = chunks("a", "one", 3)
    assert kept(*whole) == [[True]] * 3
    assert kept(*whole, [value("a")]) == [[False], [False], [False], [True]]
    assert kept(*whole, [deletion("a")]) == [[False]] * 4
    assert kept(*whole, *chunks("a", "two", 2)) == [[False]] * 3 + [[True]] * 2


def test_chunks_of_two_messages_may_come_in_turns() -> None:
    first, second = chunks("a", "one", 2), chunks("a", "two", 2)
    entries = [first[0], second[0], first[1], second[1]]
    assert kept(*entries) == [[False], [True], [False], [True]]


def test_chunks_wait_for_their_last_one_and_hide_nothing_meanwhile() -> None:
    assert kept([value("a")], *chunks("a", "one", 3, 0, 1)) == [[True], [True], [True]]


def test_a_message_without_its_first_chunks_is_judged_by_its_last() -> None:
    assert kept(*chunks("a", "one", 3, 2), [value("a")]) == [[False], [True]]


def test_chunks_without_a_key_stay_or_go_together() -> None:
    whole = chunks(None, "one", 2)
    assert kept(*whole) == [[False], [False]]
    assert kept(*whole, retain_null_key=True) == [[True], [True]]


MESSAGES = st.builds(value, st.sampled_from(["a", "b", "c", None])) | st.builds(
    deletion, st.sampled_from("abc")
)


@given(st.lists(st.lists(MESSAGES, max_size=5), max_size=20))
def test_whatever_comes_the_newest_values_stay(entries: list[list[Message]]) -> None:
    newest: dict[str, int] = {}
    for number, message in enumerate(each for entry in entries for each in entry):
        if message.key is not None:
            newest.pop(message.key, None)
            if message.has_value:
                newest[message.key] = number
    flags = [flag for entry in kept(*entries) for flag in entry]
    assert [number for number, flag in enumerate(flags) if flag] == sorted(newest.values())
