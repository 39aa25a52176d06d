"""Projections: events applied to builds, and rebuilds beside the live one."""
