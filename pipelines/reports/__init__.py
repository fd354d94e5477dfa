"""Sweep, tables, publication, page."""
