"""Proves how far behind a reader is said to be, in words, in JSON and to Prometheus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geminga import LOG_START, LogPosition
from pyspark_geminga.jobs import lag_report
from pyspark_geminga.jobs.lag_report import FORMATS, Lag, lag_of
from pyspark_geminga.log_layout import Ledger, LogLayout
from pyspark_geminga.source.decisions.offsets import Place

LAYOUT = LogLayout((Ledger(3, 10, 1000), Ledger(5, 4, 800)), LogPosition(5, 4))


@pytest.mark.parametrize(
    ("place", "entries", "size", "is_lost"),
    [
        (LogPosition(5, 4), 0, 0, False),
        (LogPosition(5, 1), 3, 600, False),
        (LogPosition(3, 10), 4, 800, False),  # the end of a closed ledger is the next one's start
        (LogPosition(3, 5), 9, 1300, False),
        (LOG_START, 14, 1800, False),
        (LogPosition(2, 7), 14, 1800, True),  # its ledger was deleted
        (LogPosition(9, 0), 0, 0, True),  # a topic that was deleted and created again
    ],
)
def test_a_query_is_behind_by_what_is_stored_after_its_position(
    place: LogPosition,
    entries: int,
    size: int,
    is_lost: bool,  # noqa: FBT001 - a parameter of the table above
) -> None:
    expected = Lag("c", "t", entries, size, is_lost=is_lost)
    assert lag_of("c", "t", Place(place), LAYOUT) == expected


def test_a_deleted_topic_is_lost() -> None:
    assert lag_of("c", "t", Place(LOG_START), None).is_lost


LAGS = [
    Lag("/c", "persistent://t/n/a", 12345, 678900),
    Lag("billing", 'persistent://t/n/"b"', 0, None),
    Lag("/c", "persistent://t/n/c", 0, 0, is_lost=True),
]


def test_the_table_is_for_people() -> None:
    assert list(FORMATS["table"](LAGS)) == [
        "reader   topic                 entries    bytes  state",
        "/c       persistent://t/n/a     12,345  678,900  behind",
        'billing  persistent://t/n/"b"        0           up to date',
        "/c       persistent://t/n/c          0        0  entries were lost",
    ]


def test_json_has_every_fact() -> None:
    (first, *_) = json.loads("\n".join(FORMATS["json"](LAGS)))
    assert first == {
        "reader": "/c",
        "topic": "persistent://t/n/a",
        "entries": 12345,
        "bytes": 678900,
        "is_lost": False,
    }


def test_prometheus_gets_gauges_with_labels() -> None:
    text = list(FORMATS["prometheus"](LAGS))
    assert 'geminga_spark_lag_entries{reader="/c",topic="persistent://t/n/a"} 12345' in text
    assert 'geminga_spark_lag_entries{reader="billing",topic="persistent://t/n/\\"b\\""} 0' in text
    assert 'geminga_spark_lag_is_lost{reader="/c",topic="persistent://t/n/c"} 1' in text
    assert not [line for line in text if line.startswith('geminga_spark_lag_bytes{reader="b')]
    assert sum(line.startswith("# TYPE") for line in text) == 3


def test_a_lag_that_cannot_be_determined_has_an_exit_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lag_report.main(["--checkpoint", str(tmp_path)]) == 3
    assert "is no checkpoint of a query" in capsys.readouterr().err
    (tmp_path / "offsets").mkdir()
    assert lag_report.main(["--checkpoint", str(tmp_path)]) == 0  # no batch is done yet
    with pytest.raises(SystemExit) as ended:
        lag_report.main([])
    assert ended.value.code == 2
