"""Dead letters: what keeps them, what waits behind them, and how they are handled again."""
