"""From pages to events: log rows, columns, changes and events, compiled or in Python."""
