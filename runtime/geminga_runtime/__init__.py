"""The foundation of all parts: services, and interfaces of everything outside of a process.

* ``service``: objects that are opened and closed in order, and own their tasks.
* ``clock``, ``network``, ``disk``, ``coordination``: interfaces of time, TCP, files and ZooKeeper.
  Code takes them through its constructors; ``geminga_simulation`` has their twins in memory. The
  real ones are here (``file_disk`` for files), but for ZooKeeper, which is in ``geminga_server``.
* ``threads``, ``work_pool``, ``backoff``: blocking calls, many pieces of work, repeated attempts.
* ``control_codec``: messages between a supervisor and its parts.
* ``java``: which Java runs ZooKeeper and Spark.
* ``errors``: the root of all errors of ours.

It depends on nothing of ours, and on no server's dependency: the client library stands on it.
Only ``clock`` asks for the time, and only ``file_disk`` opens files.
"""
