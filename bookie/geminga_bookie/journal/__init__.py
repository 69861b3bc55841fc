"""The journal: the write-ahead log that makes adds durable before they are answered.

``journal`` writes groups of adds with one sync each and answers them after it; ``journals`` makes
several journals look like one. ``replay`` reads back, at the next start, what a crash left only in
the journal. ``formats.journal_v1`` draws the files; ``decisions.group_pacing`` says when a group is
written.
"""
