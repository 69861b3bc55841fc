"""Virtual time: an event loop in one thread that a seed decides everything of.

``loop`` runs callbacks and ``timers`` keeps those that are due later. Each callback belongs to an
``incarnation``, one life of a simulated process. ``clock`` is what a process sees of the time;
``trace`` hashes what happened, so that two runs of a seed can be compared.
"""
