"""What the server tells of itself: the system tables and DESCRIBE."""
