"""Home, feeds, ledger and target of one command."""
