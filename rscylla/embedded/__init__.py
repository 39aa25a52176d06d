"""An embedded Scylla for development and tests: CQL over the native protocol on loopback, with CDC."""
