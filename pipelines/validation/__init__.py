"""Map, group, check: rows to accepted records and rejects."""
