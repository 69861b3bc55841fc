"""A real ZooKeeper for those who have none: fetched once, started in a third of a second.

``java``           which Java runs it
``jars``           which files of which archive it is made of, and where they are kept
``setup``          brings them there: ``fetch`` the jars, ``class_archive`` for a quick start
``configuration``  the configuration file and the command line it is started with
``words``          asks a running one how it is (four-letter words)
``metrics``        its measurements, as Prometheus text
"""
