"""Lists of topics are filtered and summed up as upstream's ``TopicList`` does.

Hashes and answers are those of Apache Pulsar 4.0.6 to the same questions.
"""

from __future__ import annotations

import pytest

from geminga_protocol.pulsar.errors import InvalidPattern, UnsupportedPattern
from geminga_protocol.pulsar.topics.topic_lists import TopicFilter, topics_hash, without_domain
from geminga_protocol.pulsar.topics.topic_names import TopicName

TOPICS = [
    "persistent://public/default/a",
    "persistent://public/default/a-partition-3",
    "non-persistent://public/default/ab",
    "persistent://public/default/x/y",
]


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ([], "00000000"),
        (["persistent://public/default/a"], "e4a876e3"),
        (
            [
                "persistent://public/default/b-partition-0",
                "persistent://public/default/a",
                "non-persistent://public/default/ü",
            ],
            "3b47df14",
        ),
    ],
)
def test_a_hash_is_upstreams(topics: list[str], expected: str) -> None:
    assert topics_hash(topics) == expected


def test_names_are_sorted_as_java_sorts_them() -> None:
    beyond, private = "\U0001f600", "\ue000"
    assert topics_hash([beyond, private]) == topics_hash([private, beyond])
    assert topics_hash([beyond, private]) != topics_hash([f"{private},{beyond}"])
    assert topics_hash([beyond, private]) == topics_hash([f"{beyond},{private}"])


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("persistent://public/default/a.*", [0, 1, 2]),
        (".*/a", [0, 1]),
        ("public/default/a", [0, 1]),
        ("a", []),
        ("persistent://public/default/[^a].*", [3]),
        ("non-persistent://public/default/.*", [0, 1, 2, 3]),
        ("(?i).*/A", [0, 1]),
        ("^persistent://public/default/a$", [0, 1]),
        (r"\Qpublic/default/a\E", [0, 1]),
        (".*", [0, 1, 2, 3]),
    ],
)
def test_a_pattern_takes_what_it_takes_upstream(pattern: str, taken: list[int]) -> None:
    wanted = TopicFilter(pattern)
    found = [each for each in TOPICS if wanted.takes(TopicName.parse(each))]
    assert found == [TOPICS[index] for index in taken]


@pytest.mark.parametrize(
    "pattern", ["foo://public/default/a", "(persistent|non-persistent)://a/b/c", "persistent://"]
)
def test_another_domain_is_refused_as_upstream_refuses_it(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match="Does not support topic domain"):
        TopicFilter(pattern)


@pytest.mark.parametrize("pattern", ["public/default/(?!a).*", r"(a)\1", "x*+/y", "[[:alpha:]]"])
def test_what_no_automaton_can_do_is_left_to_the_client(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern):
        TopicFilter(pattern)


def test_what_stands_before_the_domain_is_kept() -> None:
    assert without_domain("^non-persistent://a/b/c") == "^a/b/c"
