"""Which messages survive a compaction: ``entries`` looks into them, ``survivors`` chooses. Pure."""
