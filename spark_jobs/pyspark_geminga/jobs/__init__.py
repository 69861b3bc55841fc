"""Jobs around topics, each a program: ``python -m pyspark_geminga.jobs.archive --help``.

They also run under ``spark-submit``, with the file of the module. Each has a ``main`` that takes
the arguments and returns the exit code; ``_session`` has what all have in common.
"""
