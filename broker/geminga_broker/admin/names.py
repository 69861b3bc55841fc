"""Which names clusters and tenants may have (upstream's ``NamedEntity``)."""

from __future__ import annotations

import re

_NAME = re.compile(r"[-=:.\w]+", re.ASCII)


def is_valid_name(name: str) -> bool:
    """Whether ``name`` consists of letters, digits and ``-=:._`` only."""
    return _NAME.fullmatch(name) is not None
