"""Reads the files of a bookie that need not run, and changes nothing.

``offline_file``  opens a file for reading; searches it in windows
``dump``          prints the findings of some files, and counts what is wrong
``journal``       ``dump-journal``
``entry_log``     ``dump-entry-log``
``index``         ``dump-index``
"""
