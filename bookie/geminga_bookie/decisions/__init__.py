"""What the bookie decides, apart from what it does: facts in, decisions out.

``group_pacing`` says how long the journal waits for company, ``disk_space`` what a bookie with full
disks may still do, ``garbage`` which ledgers and entry logs can go. Nothing here knows a clock, a
disk or a socket.
"""
