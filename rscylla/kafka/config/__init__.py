"""The properties of a connector: files, secrets, key stores, checks, and what librdkafka makes of them."""
