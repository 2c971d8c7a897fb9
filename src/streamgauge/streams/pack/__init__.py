"""Packed streams: samples in seekable shards, written once and opened at once."""
