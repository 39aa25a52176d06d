"""Publishers to Kafka.

publisher      ``KafkaPublisher``: the idempotent producer, which keeps the order of records
transactions   ``TransactionalPublisher``: records and cursors together; parties: the runs that take part
answers        what brokers answer
topics         topics are created
"""
