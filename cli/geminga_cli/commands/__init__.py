"""One module for each command: its options, and a ``main(arguments)`` that does it."""
