"""Empty mappings, one for all who have nothing there: there may be very many logs and cursors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NO_BITS: Mapping[int, int] = MappingProxyType({})
NO_NUMBERS: Mapping[str, int] = MappingProxyType({})
NO_TEXTS: Mapping[str, str] = MappingProxyType({})
