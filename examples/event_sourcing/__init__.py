"""A shop that is event-sourced on ScyllaDB: a service to start from. See README.md here, and docs/event-sourcing.md.

    domain       the rules of orders and customers: pure
    views        what is shown of an order, and how an event changes that: pure
    tables       the read models in Scylla
    deadline     orders that are not paid in time are cancelled
    shop         puts all of it together, and runs it
    broker       Kafka, or a mock of it in memory
    problems, models, api, page, guards    the web: commands, queries, the page, and who may ask
    settings     what can be configured

Only public names of ``rscylla`` and ``cursorstore`` are used.
"""
