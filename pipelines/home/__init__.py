"""The state folder: atomic files, locks, spill, scratch folders, the inbox, progress, exit codes."""
