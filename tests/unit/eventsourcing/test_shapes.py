"""Values whose fields JSON would have in another shape: refused, so that nothing personal is where nobody looks."""

from __future__ import annotations

import json

from rscylla.eventsourcing import FORGOTTEN, MemorySubjectKeys, PersonalData
from rscylla.eventsourcing.codec import Codec


def test_a_sealed_change_without_a_value_takes_a_member_out() -> None:
    people = PersonalData(MemorySubjectKeys())
    sealed = people.seal("Person", "ann", [[["title"]], [["name"], "Ann"]])
    stored = json.dumps({"id": "ann", "name": FORGOTTEN, "title": "Dr", "$personal": ["ann", sealed]})
    assert Codec(people).opened("Person", stored) == {"id": "ann", "name": "Ann"}
