"""Methods that adapt the learning rate or the replay size: CLOC and its cosine schedules."""
