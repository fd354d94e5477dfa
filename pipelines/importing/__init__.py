"""What a command asks for: files to import, rejects to try again, status, what is broken now."""
