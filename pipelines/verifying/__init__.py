"""Ledger against target; what the journal does not know."""
