"""Groups of processes that share the slices of their consumers.

group        ``Group``: what a process gives its service
balance      which slices a member takes and gives. Pure
slicekeeper  takes and gives them
work         the lanes of the slices that are held
"""
