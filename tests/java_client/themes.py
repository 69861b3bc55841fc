"""The Java programs: which scenarios they have, and what came of each when they ran.

A theme is a class in ``programs``, a scenario a method of it that is marked ``@Scenario``. All
chosen scenarios of a theme run in one Java, several at a time, since starting one takes long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.apache_java.java import Jars, Java

PROGRAMS = Path(__file__).parent / "programs"
JARS = Jars(
    "pulsar-client", "PULSAR_CLIENT_CLASSPATH", "*pulsar-client-*.jar", pom=PROGRAMS / "pom.xml"
)
RUN_TIMEOUT_S = 450.0
AT_A_TIME = 4
# These kill the broker, which no other scenario should notice.
ONE_AT_A_TIME = {"Failures"}

_SCENARIO = re.compile(r"@Scenario\s+void (\w+)\(")
# `PASS <scenario>`, or `FAIL <scenario>` and lines that are indented.
_OUTCOME = re.compile(r"^(PASS|FAIL) (\w+)$((?:\n    .*)*)", re.MULTILINE)


class Scenario(NamedTuple):
    """One thing that is shown. Its name is a sentence in Java's spelling."""

    theme: str
    name: str

    def __str__(self) -> str:
        return f"{self.theme}-{self.name}"


def all_scenarios() -> list[Scenario]:
    """What the programs have, as it stands in their source."""
    return [
        Scenario(source.stem, name)
        for source in sorted(PROGRAMS.glob("*.java"))
        for name in _SCENARIO.findall(source.read_text())
    ]


@dataclass(slots=True)
class Themes:
    """Runs the scenarios of a theme when the first of them is asked for: those that ``chosen``,
    the names of this session's tests, has in brackets."""

    java: Java
    endpoints: Path
    chosen: str
    _outputs: dict[str, str] = field(default_factory=dict[str, str])

    def complaint(self, scenario: Scenario) -> str | None:
        """What was wrong; None if the scenario passed."""
        if scenario.theme not in self._outputs:
            self._outputs[scenario.theme] = self._run(scenario.theme)
        output = self._outputs[scenario.theme]
        for outcome, name, reason in _OUTCOME.findall(output):
            if name == scenario.name:
                return None if outcome == "PASS" else str(reason)
        return f"it did not end; the program printed\n{output}"

    def _run(self, theme: str) -> str:
        every = (each for each in all_scenarios() if each.theme == theme)
        names = [each.name for each in every if f"[{each}]" in self.chosen]
        at_a_time = 1 if theme in ONE_AT_A_TIME else AT_A_TIME
        words = (theme, str(self.endpoints), str(at_a_time), *names)
        return self.java.run("Main", *words, timeout_s=RUN_TIMEOUT_S)
