"""One meaning for every table: reading files and frames, choosing columns, parsing values.

`read` opens a file, arrays or a data frame as columns; `columns` chooses which column is the label,
the time and so on; `values` turns cells into labels, seconds and numbers. Every command that reads
a table of the user goes through these three; docs/decisions/0010 lists the rules.
"""
