"""What ``geminga bookie-admin`` does: looks into bookies, ledgers and files, and gives orders.

``commands.bookie_admin`` has the options. What asks a running cluster gets it from ``cluster``; the
``..._dump`` modules read files of bookies that need not run, and change nothing.
"""
