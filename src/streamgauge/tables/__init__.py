"""One meaning for every table of a user; the rules are in docs/tables.md.

`read` opens a file, arrays or a data frame (`base`, `text`, `arff` and `typed` read the formats);
`columns` chooses which column is the label, the time and so on; `values`, `times` and `roles` turn
cells into classes, seconds and arrays; `rows` refuses or counts bad rows.
"""
