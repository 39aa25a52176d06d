"""Ways to run consumers: one file each."""

from .run_forever import Backoff, run_forever

__all__ = ["Backoff", "run_forever"]
