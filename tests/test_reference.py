"""Proves that ``make docs`` builds a reference in which every public name stands."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import geminga
from geminga import sync

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = "docs/reference"
FIXTURES = {"geminga_standalone", "geminga_cluster", "geminga_namespace", "geminga_client"}


def test_the_reference_has_every_public_name(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    (recipe,) = [line for line in makefile.splitlines() if "-m pdoc" in line]
    assert OUTPUT in recipe
    words = shlex.split(recipe.replace(OUTPUT, str(tmp_path)))[1:]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    pages = {
        "geminga": set(geminga.__all__),
        "geminga/sync": set(sync.__all__),
        "pytest_geminga": FIXTURES,
    }
    for page, names in pages.items():
        content = (tmp_path / f"{page}.html").read_text()
        assert {name for name in names if f'id="{name}"' not in content} == set()
    assert "ack_timeout_s" in (tmp_path / "geminga.html").read_text()
