"""Contract suites: the required behavior of each Protocol's implementations, as test classes to subclass.

    class TestMyStore(SharedCursorStoreContract):
        def open_store(self) -> CursorStore:
            return MyStore(...)

Requires pytest. A subclass that needs fixtures requests them in an ``autouse`` fixture and stores them on ``self``.
Each test uses its own consumers, so the data of the stores may be shared and old.
"""

from .cursors import CursorStoreContract, EventCursorStoreContract
from .operators import CursorAdminContract, SharedCursorStoreContract
from .publishers import PublisherContract

__all__ = [
    "CursorAdminContract",
    "CursorStoreContract",
    "EventCursorStoreContract",
    "PublisherContract",
    "SharedCursorStoreContract",
]
