"""Values as bytes: JSON, Avro, JSON Schema, and the registry of schemas."""
