"""What holds for all tests: how hypothesis judges on machines that are busy with other tests."""

from __future__ import annotations

from hypothesis import settings

# No deadline for one example: on two cores that run two workers and a cluster it says nothing about
# the code. The same examples every time, so that a commit is judged by what is in it; others come
# with ``--hypothesis-profile=explore``. ``print_blob`` tells how to repeat a failure.
settings.register_profile("explore", deadline=None, print_blob=True)
settings.register_profile("magnetar", settings.get_profile("explore"), derandomize=True)
settings.load_profile("magnetar")
