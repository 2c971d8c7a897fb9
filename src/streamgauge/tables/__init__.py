"""One reader for every table: files and data frames to columns, columns to values."""
