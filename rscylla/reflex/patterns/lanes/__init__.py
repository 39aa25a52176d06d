"""Two lanes of one consumer: an early one, and a safe one behind it that finds late events."""
