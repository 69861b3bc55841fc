"""Runs the instances that a worker is assigned, in processes of their own or in threads.

``instances`` keeps what runs equal to what is assigned. ``process`` and ``thread`` are the two ways
of running an instance; ``runner`` says what they are told, and what they tell of its end. Either
speaks with its instance by ``channel``, and ``output`` keeps what a process prints. ``reports`` is
what REST shows of instances. ``assembly`` puts all of it together with the packages of functions,
from the settings in ``config``.

An instance runs only while its worker has a lease, and never twice at a time on one worker.
"""
