"""The scenarios that Geminga does not follow yet, and why: each is expected to fail, and has to be
taken out as soon as it does not.

Differences that are meant stand beside the scenario; what stands here is to be built or mended.
"""

from __future__ import annotations

from collections.abc import Mapping

NOT_YET: Mapping[str, str] = {}
