"""Named streams: one file per stream, and the tables of `splits.toml`."""
