"""What holds for all tests: how hypothesis judges on machines that are busy with other tests."""

from __future__ import annotations

from hypothesis import settings

# No deadline for one example: on two cores that run two workers and a cluster it says nothing about
# the code. ``print_blob`` tells how to repeat a failure.
settings.register_profile("magnetar", deadline=None, print_blob=True)
settings.load_profile("magnetar")
