"""A real ZooKeeper for users who have none: fetched once, started in a third of a second.

``jars``               the files it consists of, with their digests, and where they are kept
``installation``       the Java and the jars that are at hand
``setup``              brings them there: ``fetch`` the jars, ``class_archive`` for a quick start
``provide``            an installation for a caller that wants to start it now
``configuration``      the configuration file and the command line of a server
``four_letter_words``  asks a running server for its state
``metrics``            its measurements, as Prometheus text
``settings``           the settings of ``geminga zookeeper``; ``part`` runs its process

A standalone's supervisor imports ``configuration``, ``installation`` and ``provide``, which stay
small; what fetches and prepares runs in a process of its own (``geminga setup``).
"""
