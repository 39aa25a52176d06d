"""What windows of changes are applied to. One file a sink; ``sink.py`` says what a sink is."""
