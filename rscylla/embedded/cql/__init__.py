"""CQL text made into a tree: the grammar, the lexer, the parser, and one class for each statement."""
