"""Proves that each planted bug can still be planted: its patch applies to the files as they are.

A change that moves or rewrites the code of a bug makes its patch again, with the same mistake.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.project_files import ROOT

PATCHES = sorted(Path(__file__).parent.glob("*.patch"))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_applies(patch: Path) -> None:
    # To the work tree, not to the index: local changes of the files count.
    checked = subprocess.run(
        ["git", "apply", "--check", "--recount", str(patch)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not checked.returncode, checked.stderr
