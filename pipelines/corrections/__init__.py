"""What people decide: undo, doubts, rejects, purge."""
