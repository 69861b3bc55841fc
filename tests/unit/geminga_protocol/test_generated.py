"""The committed protobuf modules are what the compiler makes of the committed .proto files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROTOCOL = Path(__file__).parents[3] / "protocol"


def generated_below(folder: Path) -> dict[str, str]:
    modules = [*folder.rglob("*_pb2.py"), *folder.rglob("*_pb2.pyi")]
    return {str(module.relative_to(folder)): module.read_text() for module in modules}


def test_the_committed_modules_are_current(tmp_path: Path) -> None:
    command = [sys.executable, str(PROTOCOL / "generate.py"), "--out", str(tmp_path)]
    subprocess.run(command, check=True)
    committed = generated_below(PROTOCOL)
    assert committed == generated_below(tmp_path), "run: python protocol/generate.py"
    sources = list(PROTOCOL.rglob("*.proto"))
    assert len(committed) == 2 * len(sources) > 0
