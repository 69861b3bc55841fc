"""The bookies of the cluster: which are registered, which can be chosen, which are missing.

``registry`` watches ZooKeeper, ``bookies`` adds what connections know of each bookie and chooses
ensembles, ``missing_bookies`` tells writers of a bookie that is not registered any more.
"""
