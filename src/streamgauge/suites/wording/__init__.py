"""The words of the ledger page: its first screen, and how to read its tables."""
