"""Streams by name: one file per stream; its name is the name of the file."""
