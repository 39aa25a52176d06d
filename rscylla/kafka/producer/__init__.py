"""Publishers to Kafka, with and without transactions, their topics, and the answers of brokers."""
