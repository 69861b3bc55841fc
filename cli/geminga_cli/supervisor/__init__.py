"""Watches over the parts of a cluster on one machine: starts, restarts, stops them.

``fleet``         decides: what to start, let go on, end or kill next. Pure.
``supervisor``    acts: processes, timers, signals, the control channel
``process``       one child process: started so that it dies with us, watched without waiting
``parts``         how each part is started and when it is ready
``lock``          one supervisor for each data directory
``endpoints``     where everything is, for people and programs: DATA/endpoints.json
``operators``     what operators ask a running supervisor for
``plan``          which parts a cluster has, and what each is told
``console``       what it prints: READY and what to try next
``metrics_page``  /metrics for ZooKeeper and the supervisor itself
"""
