"""CREATE, ALTER and DROP TABLE."""

from .model import done, refused, rejected, statement

CLAUSES = (
    *statement(
        "CREATE TABLE",
        refused(
            "counter columns", "CREATE TABLE c (pk int PRIMARY KEY, c counter)", "counter tables are not supported"
        ),
        refused(
            "COMPACT STORAGE",
            "CREATE TABLE c (pk int PRIMARY KEY, v int) WITH COMPACT STORAGE",
            "COMPACT STORAGE tables are not supported",
        ),
        done(
            "columns and PRIMARY KEY",
            "CREATE TABLE c (a int, b int, d int, PRIMARY KEY (a, b))",
            [("a", "partition_key"), ("b", "clustering"), ("d", "regular")],
            shown="SELECT column_name, kind FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 'c'",
        ),
        done(
            "PRIMARY KEY behind a column",
            "CREATE TABLE c (a int PRIMARY KEY, b int)",
            [("a", "partition_key"), ("b", "regular")],
            shown="SELECT column_name, kind FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 'c'",
        ),
        done(
            "a partition key of several columns",
            "CREATE TABLE c (a int, b int, PRIMARY KEY ((a, b)))",
            [("a", 0), ("b", 1)],
            shown="SELECT column_name, position FROM system_schema.columns WHERE keyspace_name = 'ks' AND"
            " table_name = 'c'",
        ),
        done(
            "STATIC columns",
            "CREATE TABLE c (a int, b int, s int STATIC, PRIMARY KEY (a, b))",
            [("static",)],
            shown="SELECT kind FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 'c' AND"
            " column_name = 's'",
        ),
        done(
            "IF NOT EXISTS", "CREATE TABLE IF NOT EXISTS kv (a int PRIMARY KEY)", [(1, 10)], shown="SELECT k, v FROM kv"
        ),
        done(
            "another keyspace",
            "CREATE TABLE o.c (a int PRIMARY KEY)",
            [("c",)],
            given=["CREATE KEYSPACE o WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"],
            shown="SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'o'",
        ),
        done(
            "names in quotes",
            'CREATE TABLE "C" ("A" int PRIMARY KEY)',
            [("A",)],
            shown="SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 'C'",
        ),
        done(
            "WITH CLUSTERING ORDER BY",
            "CREATE TABLE c (a int, b int, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (b DESC)",
            [("a", "none"), ("b", "desc")],
            shown="SELECT column_name, clustering_order FROM system_schema.columns WHERE keyspace_name = 'ks'"
            " AND table_name = 'c'",
        ),
        done(
            "WITH comment",
            "CREATE TABLE c (a int PRIMARY KEY) WITH comment = 'x'",
            [("x",)],
            shown="SELECT comment FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 'c'",
        ),
        done(
            "WITH default_time_to_live",
            "INSERT INTO c (a, b) VALUES (1, 1)",
            [(60,)],
            given=["CREATE TABLE c (a int PRIMARY KEY, b int) WITH default_time_to_live = 60"],
            shown="SELECT ttl(b) FROM c",
        ),
        done(
            "WITH gc_grace_seconds",
            "CREATE TABLE c (a int PRIMARY KEY) WITH gc_grace_seconds = 5",
            [(5,)],
            shown="SELECT gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 'c'",
        ),
        done(
            "WITH compaction",
            "CREATE TABLE c (a int PRIMARY KEY) WITH compaction = {'class': 'LeveledCompactionStrategy'}",
            [({"class": "LeveledCompactionStrategy"},)],
            shown="SELECT compaction FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 'c'",
        ),
        done(
            "WITH compression",
            "CREATE TABLE c (a int PRIMARY KEY) WITH compression = {'sstable_compression': 'ZstdCompressor'}",
            [({"sstable_compression": "org.apache.cassandra.io.compress.ZstdCompressor"},)],
            shown="SELECT compression FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 'c'",
        ),
        done(
            "WITH caching",
            "CREATE TABLE c (a int PRIMARY KEY) WITH caching = {'enabled': 'false'}",
            [({"enabled": "false", "keys": "ALL", "rows_per_partition": "ALL"},)],
            shown="SELECT caching FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 'c'",
        ),
        done(
            "WITH speculative_retry",
            "CREATE TABLE c (a int PRIMARY KEY) WITH speculative_retry = 'ALWAYS'",
            [("ALWAYS",)],
            shown="SELECT speculative_retry FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 'c'",
        ),
        done(
            "WITH id",
            "CREATE TABLE c (a int PRIMARY KEY) WITH id = 'f79ba920-2f47-11e9-8d3b-3f5c5f5c5f5c'",
            [("f79ba920-2f47-11e9-8d3b-3f5c5f5c5f5c",)],
            shown="SELECT CAST(id AS text) FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 'c'",
        ),
        done(
            "WITH cdc",
            "INSERT INTO c (a) VALUES (1)",
            [(2,)],
            given=["CREATE TABLE c (a int PRIMARY KEY) WITH cdc = {'enabled': true}"],
            shown='SELECT "cdc$operation" FROM c_scylla_cdc_log',
        ),
        done(
            "WITH cdc, preimage",
            "UPDATE c SET b = 2 WHERE a = 1",
            [(2, 1), (0, 1), (1, 2)],
            given=[
                "CREATE TABLE c (a int PRIMARY KEY, b int) WITH cdc = {'enabled': true, 'preimage': true}",
                "INSERT INTO c (a, b) VALUES (1, 1)",
            ],
            shown='SELECT "cdc$operation", b FROM c_scylla_cdc_log',
        ),
        done(
            "WITH cdc, postimage",
            "UPDATE c SET b = 2 WHERE a = 1",
            [(1, 2), (9, 2)],
            given=["CREATE TABLE c (a int PRIMARY KEY, b int) WITH cdc = {'enabled': true, 'postimage': true}"],
            shown='SELECT "cdc$operation", b FROM c_scylla_cdc_log',
        ),
        done(
            "WITH cdc, delta of keys",
            "UPDATE c SET b = 2 WHERE a = 1",
            [(1, 1, None)],
            given=["CREATE TABLE c (a int PRIMARY KEY, b int) WITH cdc = {'enabled': true, 'delta': 'keys'}"],
            shown='SELECT "cdc$operation", a, b FROM c_scylla_cdc_log',
        ),
        done(
            "WITH cdc, ttl",
            "INSERT INTO c (a) VALUES (1)",
            [(0,)],
            given=["CREATE TABLE c (a int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 60}"],
            after=61,
            shown="SELECT count(*) FROM c_scylla_cdc_log",
        ),
        rejected(
            "WITH an unknown property",
            "CREATE TABLE c (a int PRIMARY KEY) WITH nothing = 1",
            "SyntaxException",
            "Unknown property 'nothing'",
        ),
        rejected("a table that exists", "CREATE TABLE kv (a int PRIMARY KEY)", "AlreadyExists", "kv"),
        rejected(
            "no PRIMARY KEY",
            "CREATE TABLE c (a int)",
            "InvalidRequest",
            "No PRIMARY KEY specified (exactly one required)",
        ),
        rejected(
            "two PRIMARY KEYs",
            "CREATE TABLE c (a int PRIMARY KEY, b int PRIMARY KEY)",
            "InvalidRequest",
            "Multiple PRIMARY KEYs specified (exactly one required)",
        ),
        rejected(
            "STATIC without clustering columns",
            "CREATE TABLE c (a int PRIMARY KEY, s int STATIC)",
            "InvalidRequest",
            "Static columns are only useful (and thus allowed) if the table has at least one clustering column",
        ),
        rejected(
            "a collection in the key",
            "CREATE TABLE c (a list<int> PRIMARY KEY)",
            "InvalidRequest",
            "Invalid non-frozen collection type for PRIMARY KEY component a",
        ),
        rejected(
            "a keyspace that is not there",
            "CREATE TABLE o.c (a int PRIMARY KEY)",
            "InvalidRequest",
            "Keyspace 'o' does not exist",
        ),
        done(
            "WITH bloom_filter_fp_chance, crc_check_chance",
            "CREATE TABLE c (a int PRIMARY KEY) WITH bloom_filter_fp_chance = 0.5 AND crc_check_chance = 0.25",
            [(0.5, 0.25)],
            shown="SELECT bloom_filter_fp_chance, crc_check_chance FROM system_schema.tables WHERE"
            " keyspace_name = 'ks' AND table_name = 'c'",
        ),
        done(
            "WITH min_index_interval, max_index_interval",
            "CREATE TABLE c (a int PRIMARY KEY) WITH min_index_interval = 64 AND max_index_interval = 128",
            [(64, 128)],
            shown="SELECT min_index_interval, max_index_interval FROM system_schema.tables WHERE keyspace_name"
            " = 'ks' AND table_name = 'c'",
        ),
        done(
            "WITH memtable_flush_period_in_ms",
            "CREATE TABLE c (a int PRIMARY KEY) WITH memtable_flush_period_in_ms = 60000",
            [(60000,)],
            shown="SELECT memtable_flush_period_in_ms FROM system_schema.tables WHERE keyspace_name = 'ks' AND"
            " table_name = 'c'",
        ),
        rejected(
            "bloom_filter_fp_chance above 1",
            "CREATE TABLE c (a int PRIMARY KEY) WITH bloom_filter_fp_chance = 1.5",
            "ConfigError",
            "bloom_filter_fp_chance must be larger than",
        ),
        rejected(
            "gc_grace_seconds below 0",
            "CREATE TABLE c (a int PRIMARY KEY) WITH gc_grace_seconds = -1",
            "ConfigError",
            "gc_grace_seconds",
        ),
        rejected(
            "max_index_interval below min_index_interval",
            "CREATE TABLE c (a int PRIMARY KEY) WITH min_index_interval = 64 AND max_index_interval = 1",
            "ConfigError",
            "max_index_interval",
        ),
        rejected(
            "an unknown compaction class",
            "CREATE TABLE c (a int PRIMARY KEY) WITH compaction = {'class': 'Nothing'}",
            "ConfigError",
            "Nothing",
        ),
        rejected(
            "an unknown compression class",
            "CREATE TABLE c (a int PRIMARY KEY) WITH compression = {'sstable_compression': 'Nothing'}",
            "ConfigError",
            "Nothing",
        ),
        rejected(
            "default_time_to_live below 0",
            "CREATE TABLE c (a int PRIMARY KEY) WITH default_time_to_live = -1",
            "ConfigError",
            "default_time_to_live",
        ),
    ),
    *statement(
        "ALTER TABLE",
        done(
            "ALTER column TYPE: ascii to text, timeuuid to uuid, and native types to blob",
            "ALTER TABLE t ALTER w TYPE blob",
            [(b"a",)],
            shown="SELECT w FROM t WHERE pk = 1 AND ck = 1",
        ),
        refused(
            "ALTER column TYPE: other compatible types",
            "ALTER TABLE t ALTER v TYPE varint",
            "ALTER TABLE ... TYPE is not supported",
        ),
        rejected(
            "ALTER column TYPE: incompatible types", "ALTER TABLE t ALTER v TYPE text", "ConfigError", "incompatible"
        ),
        done("ADD", "ALTER TABLE kv ADD a text", [(1, None, 10)], shown="SELECT * FROM kv"),
        done(
            "ADD several columns", "ALTER TABLE kv ADD (a text, b int)", [(1, None, None, 10)], shown="SELECT * FROM kv"
        ),
        done(
            "ADD STATIC",
            "ALTER TABLE t ADD z int STATIC",
            [("static",)],
            shown="SELECT kind FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't' AND"
            " column_name = 'z'",
        ),
        done(
            "ADD of a dropped column with another type",
            "ALTER TABLE kv ADD v text",
            [(1, None)],
            given=["ALTER TABLE kv DROP v"],
            shown="SELECT * FROM kv",
        ),
        done("DROP", "ALTER TABLE kv DROP v", [(1,)], shown="SELECT * FROM kv"),
        done(
            "DROP several columns",
            "ALTER TABLE t DROP (l, m, n, st, u, w)",
            [(1, 1, 100, 10), (1, 2, 100, 20), (2, 1, None, 30)],
            shown="SELECT * FROM t",
        ),
        done(
            "DROP USING TIMESTAMP",
            "ALTER TABLE kv ADD v int",
            [(1, 10)],
            given=["ALTER TABLE kv DROP v USING TIMESTAMP 5"],
            shown="SELECT * FROM kv",
        ),
        done(
            "RENAME of a key column",
            "ALTER TABLE kv RENAME k TO key",
            [(1, 10)],
            shown="SELECT * FROM kv",
            columns=["key", "v"],
        ),
        rejected(
            "RENAME of a regular column",
            "ALTER TABLE kv RENAME v TO x",
            "InvalidRequest",
            "Cannot rename non PRIMARY KEY part v",
        ),
        done(
            "WITH properties",
            "ALTER TABLE kv WITH gc_grace_seconds = 5 AND comment = 'x'",
            [(5, "x")],
            shown="SELECT gc_grace_seconds, comment FROM system_schema.tables WHERE keyspace_name = 'ks' AND"
            " table_name = 'kv'",
        ),
        done(
            "WITH cdc",
            "INSERT INTO kv (k, v) VALUES (2, 20)",
            [(2, 20)],
            given=["ALTER TABLE kv WITH cdc = {'enabled': true}"],
            shown='SELECT "cdc$operation", v FROM kv_scylla_cdc_log',
        ),
        rejected("DROP of a key column", "ALTER TABLE kv DROP k", "InvalidRequest", "Cannot drop PRIMARY KEY part k"),
        rejected(
            "ADD of a column that exists",
            "ALTER TABLE kv ADD v int",
            "InvalidRequest",
            "Invalid column name v because it conflicts with an existing column",
        ),
        rejected(
            "a table that is not there", "ALTER TABLE nothing ADD x int", "InvalidRequest", "unconfigured table nothing"
        ),
        rejected(
            "a change of a CDC log's table", "ALTER TABLE logged_scylla_cdc_log ADD x int", "InvalidRequest", "CDC log"
        ),
    ),
    *statement(
        "DROP TABLE",
        done(
            "the statement",
            "DROP TABLE kv",
            [(0,)],
            shown="SELECT count(*) FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 'kv'",
        ),
        done(
            "and its CDC log",
            "DROP TABLE logged",
            [(0,)],
            shown="SELECT count(*) FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name ="
            " 'logged_scylla_cdc_log'",
        ),
        done("IF EXISTS", "DROP TABLE IF EXISTS nothing", [(1, 10)], shown="SELECT k, v FROM kv"),
        rejected("a table that is not there", "DROP TABLE nothing", "InvalidRequest", "nothing"),
        rejected("a CDC log", "DROP TABLE logged_scylla_cdc_log", "Unauthorized", "Cannot DROP cdc log table"),
    ),
)
