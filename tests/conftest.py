"""What holds for all tests: how hypothesis judges on machines that are busy with other tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No deadline for one example, and none for making some: on two cores that run two workers and a
# cluster they say nothing about the code. The same examples every time, so that a commit is judged
# by what is in it; others come with ``--hypothesis-profile=explore``. ``print_blob`` tells how to
# repeat a failure.
settings.register_profile(
    "explore", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("geminga", settings.get_profile("explore"), derandomize=True)
settings.load_profile("geminga")
