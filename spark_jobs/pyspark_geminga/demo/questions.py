"""What the demo asks of the Parquet files, and how the answers are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from pyspark_geminga.demo.charts import bars, histogram
from pyspark_geminga.demo.report import Section

# Length limits of formatters and style guides.
STYLES = ((79, "79"), (88, "88"), (100, "100"), (120, "120"))
Answer = Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Question:
    """A query on the view ``lines`` that answers with names and numbers, and its chart."""

    title: str
    words: str
    query: str
    draw: Callable[[Answer], str] = bars

    def asked(self, spark: SparkSession) -> Section:
        """The section of the report."""
        rows = spark.sql(self.query).collect()
        # SQL gives numbers as int, Decimal or float; charts take floats.
        answer = [(str(name), float(number)) for name, number in rows]
        return Section(self.title, self.words, self.draw(answer))


def _columns(answer: Answer, name: str, marks: Sequence[tuple[int, str]] = ()) -> str:
    return histogram([(int(value), int(count)) for value, count in answer], name, marks)


# Each query names its two columns in the order of the answer: a name or value, then a number.
QUESTIONS = (
    Question(
        "How long lines are",
        "Lines that are not empty, by their length. The dashed lines are the limits that guides of "
        "style and formatters ask for: many lines end just before one.",
        "select length, count(*) from lines where length between 1 and 140 "
        "group by length order by length",
        partial(_columns, name="characters", marks=STYLES),
    ),
    Question(
        "How far they are indented",
        "Spaces before the code. Four a level; what lies between continues a line above.",
        "select indent, count(*) from lines where kind not in ('blank', 'text') and indent <= 40 "
        "group by indent order by indent",
        partial(_columns, name="spaces"),
    ),
    Question(
        "What they are",
        "Texts are those in three quotes, most of them documentation.",
        "select kind, count(*) n from lines group by kind order by n desc",
    ),
    Question(
        "Words that begin a line",
        "The first word of each line of code: what Python programs are made of.",
        "select word, count(*) n from lines where word is not null "
        "group by word order by n desc limit 25",
    ),
    Question(
        "The largest packages",
        "Lines that were read of each; those that come with Python are marked.",
        "select concat(package, if(is_standard, ' (std)', '')) p, count(*) n "
        "from lines group by p order by n desc limit 20",
    ),
    Question(
        "Who explains most",
        "Comments and texts in a hundred lines that are not blank, of packages with 5,000.",
        "select package, 100 * avg(if(kind in ('comment', 'text'), 1, 0)) share "
        "from lines where kind != 'blank' group by package having count(*) >= 5000 "
        "order by share desc limit 20",
        partial(bars, unit=" %"),
    ),
)
