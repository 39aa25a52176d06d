from .changes import PartsInPython
from .events import ChangeEvent as InPython
from .events import EventContext, Events
from .layout import Cells, Layout
from .rows import LogRows as RowsInPython

class Plan:
    def __init__(self, layout: Layout) -> None: ...

class ChangeParts(PartsInPython): ...

class LogRows(RowsInPython):
    def events(self, context: EventContext, *, joined: bool, after: bytes = b"") -> Events: ...

class ChangeEvent(InPython):
    def packed(self) -> tuple[bytes, bytes | None, bytes | None, int]: ...

SUM_OF_SOURCES: int
OPERATIONS: dict[str, int]

def token_of_key(key: bytes) -> int: ...
def split_rows(body: bytes, offset: int, columns: int) -> list[Cells]: ...
