"""Memberships of processes that share slices, and their table."""
