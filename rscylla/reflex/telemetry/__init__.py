"""What a run shows of itself: metrics, logs, traces, and the activity of consumers."""
