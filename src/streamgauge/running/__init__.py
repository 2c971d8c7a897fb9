"""Runs: protocol, loop, evaluation, and the executors that carry out planned runs."""
