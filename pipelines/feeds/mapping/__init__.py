"""Rows to values."""
