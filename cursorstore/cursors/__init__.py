"""Stores of cursors.

scylla        in a Scylla table: a register that only grows; table: its statements
memory        in memory; buffered: many events, one write; readthrough: from an old store
codec         cursors as positions, which sort as text
reslice       cursors for another number of slices
"""
