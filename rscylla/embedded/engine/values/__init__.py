"""Values computed from rows: functions, aggregates, arithmetic, and how they are made of one another."""
