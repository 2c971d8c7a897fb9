"""Files: atomic writes and locks."""
