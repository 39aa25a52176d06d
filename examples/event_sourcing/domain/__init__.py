"""The business: what orders and customers are, and which rules they follow.

Pure Python: no table, no clock, no broker. Each aggregate is two functions, ``decide`` and ``evolve``, over frozen
classes. Commands say what someone wants and may be refused; events say what happened, and never are.

    orders       an order, from its creation to its delivery or its cancellation
    customers    a customer; personal fields are marked, so that they can be forgotten
    rules        ``RuleBroken``, with a code for each rule
"""
