"""The code of functions: kept in topics, and prepared on a worker's disk for instances to run.

``store`` keeps packages in topics; ``archives`` makes folders of modules of them; ``environments``
builds a virtual environment for a package that requires distributions. ``cache`` does all three for
an instance, once for all instances of one version.
"""
