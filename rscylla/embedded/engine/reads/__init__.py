"""SELECT: its rules, select lists, and the pages that are read."""
