"""What gives disk space back: deleted ledgers are forgotten, and entry logs compacted."""
