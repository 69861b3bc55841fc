"""Runs one instance of a function, source or sink, in a thread or a process of its own.

To be read in this order:

- ``spec`` describes the instance to run, and ``messages`` what it and its worker send each other;
- ``worker_link`` and ``main`` run it for a worker: in a thread of the worker, and in a process;
- ``function_instance`` is the instance itself: it consumes inputs and has their messages processed;
- ``outcome`` calls the user's code, which ``code_loader`` finds, with a ``context``, and collects
  what came of it; ``components`` are sources and sinks; ``user_code`` calls asynchronous code;
- ``settlement`` sends results and acknowledges messages, ``effectively_once`` does so together with
  changes of the state; ``outputs`` has the producers, ``services`` what the code may ask a broker
  for;
- ``inputs``, ``record_schemas`` and ``encryption`` read the metadata of the function;
- ``status`` counts what happens; ``state`` is what an instance needs of the function's state.

An instance never runs without a lease from its worker. It acknowledges a message once what came of
it is stored, unless the function's guarantee says otherwise. Nothing here imports a dependency of
servers: the environment of a function may have the client library alone.
"""
