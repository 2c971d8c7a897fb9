"""How a model learns: one file per method, named like the method.

A method is ER with one thing changed: what is recalled, the loss, the classifier, or the update.
The learner of a file is the one class in it that has both `learn` and `predict`. What published
codes do differently is in `published/`.
"""
