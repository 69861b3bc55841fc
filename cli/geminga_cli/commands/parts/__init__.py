"""The commands that run one part of a cluster, and the options that are made of a part's settings.

``part_command``   an option for each setting, and how a part is run
``settings_help``  the ``--help`` of a command with settings
The other modules are a part each: its settings, in the subjects of its help.
"""
