"""One module for each command: its options, and a ``main(arguments)`` that runs it.

The commands that run one part of a cluster are in ``parts``. Nothing that only running a command
needs is imported before its options were read: ``--help`` stays quick, and mistakes are reported at
once.
"""
