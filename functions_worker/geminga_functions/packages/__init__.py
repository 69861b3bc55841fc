"""The code of functions: kept in topics, fetched to a worker's disk, unpacked, and given an
environment with what it requires.

``store`` keeps packages in topics; ``unpacking`` makes folders of modules of them; ``environments``
builds a virtual environment where one requires distributions; ``cache`` does all three for an
instance, once for all instances of one version.
"""
