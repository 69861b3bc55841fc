"""The REST interface of a functions worker; ``app.worker_app`` makes the application.

Every worker answers every request: the leader stores changes, and the worker that runs an instance
reports on it. ``facade`` knows how to reach both. ``components`` has the paths of functions,
sources and sinks, whose differences are in ``kinds``; ``packages``, ``state``, ``trigger``,
``builtins`` and ``workers`` have the others. ``forms`` and ``uploads`` read requests, ``reports``
makes answers.

Importing it imports the web framework, which takes a third of a second: import it once the worker's
port is open.
"""
