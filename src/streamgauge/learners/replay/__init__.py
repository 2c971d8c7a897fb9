"""Methods that train a network by gradient steps: ER and what extends it."""
