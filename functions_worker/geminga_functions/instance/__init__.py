"""Runs one instance of a function, source or sink, in a thread or a process of its own.

To be read in this order:

- ``spec`` describes the instance to run, and ``messages`` what it and its worker send each other;
- ``serving`` and ``main`` run it for a worker: in a thread of the worker, and in a process;
- ``running`` is the instance itself: it consumes inputs and has their messages processed;
- ``processing`` calls the user's code, which ``loading`` finds, with a ``context``; ``components``
  are sources and sinks; ``calling`` says where code is called: in a thread or on the loop;
- ``settling`` sends results and acknowledges messages, ``committing`` does so together with changes
  of the state; ``outputs`` has the producers, ``publishing`` what the code publishes itself;
- ``inputs``, ``record_schemas`` and ``encryption`` read the metadata of the function;
- ``status`` counts what happens; ``state`` is what an instance needs of the function's state.

An instance never runs without a lease from its worker. It acknowledges a message once what came of
it is stored, unless the function's guarantee says otherwise. Nothing here imports a dependency of
servers: the environment of a function may have the client library alone.
"""
