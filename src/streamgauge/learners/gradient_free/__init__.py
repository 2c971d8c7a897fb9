"""Methods without gradient steps: counts, class means, nearest neighbours, constant answers."""
