"""CQL text made into a tree: the grammar, the lexer, the parser, and one class for each statement.

A statement takes a rule in ``cql.lark``, a class in ``ast.py`` and a method of the rule's name in ``building``. One
that is refused by name takes an entry in ``unsupported.py``. The trees are executed in ``engine/``, where a new
statement continues.
"""
