"""Routes about namespaces: create, delete, unload and split them, set policies, clear backlogs.

``policies`` declares most policies in one table, for namespaces and for single topics alike.
"""
