"""Names that CQL allows in quotes, and that other systems read in another way, or not at all."""

from __future__ import annotations

OF_ICEBERG = (
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
    *("__row_operation", "__row_from_source", "__row_from_target", "__row_id"),
)
"""Columns that Iceberg has itself in any table, and that Spark adds to the rows of a MERGE."""

OF_DELTA = (
    *("_row_id_", "_file_name_", "_source_row_present_", "_target_row_present_", "_row_dropped_", "_incr_row_count_"),
    "__delta_internal_is_row_deleted",
)
"""Columns that Delta Lake adds to the rows of a MERGE, or to its files."""

OF_PARQUET = ("_tmp_metadata_row_index",)
"""Columns that Spark adds to files of Parquet, which Delta Lake has, too."""

ODD_NAMES = (
    *("two words", " first", "a.b", ".", "a`b", 'q"q', "q'q", "x;y", "(p)", "{c}", "[s]", "a,b", "a=b", "tab\there"),
    *("new\nline", "$d", "a:b", "a/b", "..", "%s", "\\", "*", "a->b", "#", "@", "1", "_2", "ÄÖ", "名前", "😀"),
    *("element", "key", "value", "select", "null", "table", "number", "text", "start", "end", "UPPER", "e\u0301"),
    *(" ", "last ", "\u00a0", "\u200b", "\r", "\x01", "<a>", "&", "a|b", "!", "?", "~", "^", "--", "/*"),
    *("_metadata", "_change_type", "_commit_version", "_commit_timestamp", "_change_ordinal", "_commit_snapshot_id"),
    *("__index_level_0__", "file_path", "row"),
    *("t", "dead", "expires", "ttl", "c0", "l0", "cdc_source", "cdc_known"),
)
"""Pairwise different, whatever their case."""
