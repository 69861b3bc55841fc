"""A broker's REST that notes what it is asked and answers what it is told to; commands ask it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geminga_cli.admin.operation import Operation
from geminga_cli.admin.service import AdminService, Answer, FormPart
from geminga_cli.commands.admin import operations_of


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    content: Any = None
    parts: Sequence[FormPart] = ()


class RecordingService(AdminService):
    """``answers`` are by path; what is not there is answered with nothing."""

    def __init__(self, answers: Mapping[str, Any] | None = None) -> None:
        self.asked: list[Asked] = []
        self._answers = answers or {}

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        content: Any = None,
    ) -> Any:
        self.asked.append(Asked(method, path, dict(query or {}), content))
        return self._answered(path)

    def fetch(self, path: str, query: Mapping[str, Any] | None = None) -> Answer:
        self.asked.append(Asked("GET", path, dict(query or {})))
        answer = self._answered(path)
        return answer if isinstance(answer, Answer) else Answer({}, b"")

    def submit(self, method: str, path: str, parts: Sequence[FormPart]) -> Any:
        self.asked.append(Asked(method, path, parts=tuple(parts)))
        return self._answered(path)

    def download(self, path: str, query: Mapping[str, Any], file: Path) -> None:
        del file
        self.asked.append(Asked("GET", path, dict(query)))
        self._answered(path)

    def _answered(self, path: str) -> Any:
        answer = self._answers.get(path)
        if isinstance(answer, Exception):
            raise answer
        return answer


def given_for(operation: Operation, words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    for argument in operation.arguments:
        argument.add_to(parser)
    return parser.parse_args(words)


def operation_of(line: str) -> tuple[Operation, list[str]]:
    group, word, *rest = line.split()
    return next(each for each in operations_of(group) if each.word == word), rest


def done(line: str, answers: Mapping[str, Any] | None = None) -> list[Asked]:
    operation, words = operation_of(line)
    service = RecordingService(answers)
    operation.does(service, given_for(operation, words))
    return service.asked
