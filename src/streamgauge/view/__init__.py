"""The page of runs while they go on: a small server that only reads, or the same as files."""
