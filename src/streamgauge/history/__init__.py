"""What past labels alone predict: forecasters, bits, periods and intervals."""
