"""Arrow arrays as values that can be compared. Needs pyarrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def numbers_for_moments(array: Any) -> Any:
    """Return *array* with dates and timestamps, which Python does not have for all years, as numbers."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return array.view(pa.int64())
    if pa.types.is_date32(kind):
        return array.view(pa.int32())
    if pa.types.is_list(kind):
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, numbers_for_moments(array.values), mask=mask)
    if pa.types.is_map(kind):
        mask = array.is_null() if array.null_count else None
        keys, items = numbers_for_moments(array.keys), numbers_for_moments(array.items)
        return pa.MapArray.from_arrays(array.offsets, keys, items, mask=mask)
    if pa.types.is_struct(kind):
        mask = array.is_null() if array.null_count else None
        children = [numbers_for_moments(array.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, names=[f.name for f in kind], mask=mask)
    return array
