"""File to batch."""
