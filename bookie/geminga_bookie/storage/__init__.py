"""Entries behind the journal: in memory first, then in entry logs that an index knows."""
