"""Dead letters: events that a consumer could not handle, and their audit trail."""
