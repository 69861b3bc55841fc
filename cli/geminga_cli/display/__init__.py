"""What commands print, as lines of text. Pure: no clock, no input or output, no terminal.

``text``         tables, JSON, sizes and ranges in words; escapes what a terminal would obey
``messages``     messages, as ``geminga consume`` and ``geminga read`` show them
``topic_stats``  statistics of a topic, as ``geminga admin topics stats`` shows them
"""
