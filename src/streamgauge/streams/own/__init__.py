"""Streams over the user's own data: arrays, tables, image folders, Hugging Face, tar shards."""
