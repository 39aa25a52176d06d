"""Which releases of Scylla the server imitates, and what differs between them: one table, and nothing else knows.

Read in the release branches of ``scylladb/scylladb``; no Scylla was run. What is not in the table is as in the newest
release, also where an older one differs.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import attrs

__all__ = ["DIFFERENCES", "NEWEST", "RELEASES", "Difference", "Release", "Version"]

Version = Literal["4.3", "4.4", "5.4", "6.0", "2025.1", "2025.4", "2026.1", "2026.2", "2026.3"]

RELEASES: Final[tuple[Version, ...]] = get_args(Version)
"""The imitated releases, ascending."""


@attrs.frozen
class Difference:
    """Something that releases have from ``since`` on, the first imitated one; ``source``: Scylla's commit or file.

    ``what`` is the name of a system table, or of one of its columns after a slash, or says what it is.
    """

    what: str
    since: Version
    source: str


DIFFERENCES: Final = tuple(
    Difference(*row)
    for row in (
        # System tables and columns.
        ("system_distributed.cdc_generation_timestamps", "4.4", "db/system_distributed_keyspace.cc"),
        ("system_distributed.cdc_streams_descriptions_v2", "4.4", "db/system_distributed_keyspace.cc"),
        ("system.versions", "5.4", "since 5.0: db/virtual_tables.cc"),
        ("system_schema.scylla_keyspaces", "5.4", "since 5.1: db/schema_tables.cc"),
        ("system_schema.scylla_keyspaces/initial_tablets", "6.0", "db/schema_tables.cc"),
        ("system_schema.scylla_tables/committed_by_group0", "6.0", "db/schema_tables.cc"),
        ("system.group0_history", "6.0", "db/system_keyspace.cc"),
        ("system.tablets", "6.0", "replica/tablets.cc"),
        ("system_schema.scylla_tables/in_memory", "2025.1", "db/schema_tables.cc"),
        ("system_schema.scylla_tables/tablets", "2025.4", "since 2025.2: db/schema_tables.cc"),
        ("system.cdc_timestamps", "2025.4", "1fc3273b27"),
        ("system.cdc_streams", "2025.4", "1fc3273b27"),
        ("system.cdc_streams_state", "2025.4", "1fc3273b27"),
        ("system.cdc_streams_history", "2025.4", "1fc3273b27"),
        ("system_schema.scylla_keyspaces/consistency", "2026.1", "data_dictionary/data_dictionary.cc"),
        ("system_schema.keyspaces/replication_v2", "2026.1", "db/schema_tables.cc"),
        ("system_schema.keyspaces/next_replication", "2026.2", "db/schema_tables.cc"),
        ("system_schema.scylla_tables/storage_engine", "2026.2", "db/schema_tables.cc"),
        ("system_schema.scylla_tables/large_data_guardrails_enabled", "2026.3", "db/schema_tables.cc"),
        # The protocol, by the names of SUPPORTED.
        ("TABLETS_ROUTING_V1", "6.0", "transport/cql_protocol_extension.cc"),
        ("SCYLLA_USE_METADATA_ID", "2025.4", "since 2025.3: 086df24555"),
        ("CLIENT_OPTIONS", "2026.1", "transport/server.cc"),
        ("SCYLLA_HOST_ID", "2026.3", "transport/server.cc"),
        # Statements.
        ("tablets", "6.0", "the property of keyspaces, and the default of new ones: conf/scylla.yaml"),
        ("DESCRIBE with tablets enabled", "2025.1", "data_dictionary/data_dictionary.cc"),
        ("DESCRIBE with tablets enabled and initial", "2025.4", "data_dictionary/data_dictionary.cc"),
        ("default replication", "2025.4", "bc8bb0873d, ca5adf2ac1"),
        ("keyspace consistency", "2026.1", "cql3/statements/ks_prop_defs.cc"),
        ("rack lists", "2026.1", "cql3/statements/ks_prop_defs.cc"),
        ("SimpleStrategy only without tablets", "2026.2", "d18eb9479f"),
        ("LWT with tablets", "2025.4", "ab03badc15"),
        ("counters with tablets", "2026.1", "9208b2f317"),
        # The log.
        ("preimages mark null columns", "5.4", "since 4.6: b1650114eb"),
        ("preimage neither on nor off", "5.4", "since 5.0: 033a75ff96"),
        ("ALTER names enabled", "5.4", "since 5.0: 5a8741a1ca"),
        ("a log outlives enabled: false", "5.4", "since 5.1: adda43edc7"),
        ("writes into the generation before", "6.0", "330a37b5c9"),
        ("CDC with tablets", "2025.4", "1fc3273b27"),
        ("log columns are dropped ahead", "2025.4", "since 2025.3.5: 48298e38ab"),
        ("preimage of a partition delete", "2026.1", "2812e67f47"),
    )
)
"""What a client can meet and the server imitates, by the release that brought it."""

_SINCE: Final[dict[str, int]] = {each.what: RELEASES.index(each.since) for each in DIFFERENCES}
_BUILT: Final = "0.20260821.000000000000"  # a build of Scylla has its date and commit here


@attrs.frozen
class Release:
    """An imitated release. ``given``: its name; None for the newest one whose new keyspaces have no tablets.

    Raises ValueError for a name that is none of ``RELEASES``.
    """

    given: Version | None = attrs.field(default=None)

    @given.validator
    def _is_known(self, _: object, given: object) -> None:
        if given is not None and given not in RELEASES:
            raise ValueError(
                f"there is no imitation of version {given!r}; give one of {', '.join(RELEASES)}, or None for the newest"
            )

    @property
    def name(self) -> Version:
        return self.given or RELEASES[-1]

    @property
    def build(self) -> str:
        """What ``system.versions`` says."""
        return f"{self.name}.0-{_BUILT}"

    @property
    def prefers_tablets(self) -> bool:
        """Whether new keyspaces have tablets where neither they nor the server's owner say so."""
        return self.given is not None and self.has("tablets")

    def has(self, what: str) -> bool:
        """Return whether the release has a difference, by its ``what``. KeyError for one that the table lacks."""
        return _SINCE[what] <= RELEASES.index(self.name)

    def has_table(self, keyspace: str, name: str) -> bool:
        """Return whether the release has this system table; those that the table lacks are in all of them."""
        place = f"{keyspace}.{name}"
        return place not in _SINCE or self.has(place)

    def has_column(self, keyspace: str, table: str, name: str) -> bool:
        """Return whether the release has this column of a system table; see ``has_table``."""
        place = f"{keyspace}.{table}/{name}"
        return place not in _SINCE or self.has(place)


NEWEST: Final = Release()
