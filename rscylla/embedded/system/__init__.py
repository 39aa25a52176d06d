"""What the server tells of itself: the system tables and DESCRIBE.

A system table takes its columns in ``definitions.py`` and a method that yields its rows in ``contents.py``; without the
method it is empty.
"""
