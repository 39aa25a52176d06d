"""Memberships of processes that share slices.

group    a membership, which expires like a lease; scylla: in a table; fence: whether a slice is held, in which epoch
admin    what operators do with groups
rows     what a table of groups keeps; table: in Scylla; memory: in one process
"""
