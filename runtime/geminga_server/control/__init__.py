"""The channel between a supervisor and the processes that it starts.

``channel`` carries messages over a Unix socket. The supervisor listens with ``server``; parts, and
operators' commands, connect with ``client``. ``supervision`` names the environment variables by
which a part finds its supervisor; ``readiness`` notifies a service manager where there is none.
"""
