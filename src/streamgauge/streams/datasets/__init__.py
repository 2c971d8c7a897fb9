"""Data sets: download, verify and unpack published files into arrays."""
