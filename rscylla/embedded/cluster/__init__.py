"""Nodes, tokens, and the streams that follow from them: generations of vnodes, stream sets of tablets."""
