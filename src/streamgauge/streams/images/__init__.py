"""Encoded images: where they are stored, and how they become pixels."""
