"""Data types and their values, and CREATE, ALTER and DROP TYPE."""

from .model import refused, statement

CLAUSES = (
    *statement(
        "ALTER TYPE",
        refused(
            "ALTER field TYPE", "ALTER TYPE pair ALTER x TYPE bigint", "ALTER TYPE ... ALTER ... TYPE is not supported"
        ),
    ),
)
