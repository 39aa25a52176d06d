"""Sinks, to which windows of changes are applied: one module per sink; ``sink.py`` has their protocol."""
