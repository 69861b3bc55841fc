"""The ``geminga`` command: it runs clusters and their parts, administers them, and measures them.

``main``                finds the command; each is a module of ``commands``
``commands``            the options of each command; those of parts are made of the parts' settings
``supervisor``          runs the parts of a cluster on one machine and restarts those that fail
``embedded_zookeeper``  fetches and runs a real ZooKeeper
``admin``               ``geminga admin``: the REST of brokers
``bookie_admin``        ``geminga bookie-admin``: bookies, ledgers, and the files of bookies
``messaging``           ``produce``, ``consume``, ``read`` and ``perf``, on the client library
``throughput``          paces, counts and percentiles. Pure
``display``             what commands print, as lines of text. Pure
The other modules are small things that several of these use.

Every module imports what it needs only when it needs it: ``--help`` is quick, the supervisor stays
small because it loads no server, and ``messaging`` runs with the bare client library.
"""
