"""Durable timers, where they are kept, and the processes that set them."""
