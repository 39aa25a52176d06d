"""The sessions that an embedded server opens live until it is stopped, whoever else holds them."""

from __future__ import annotations

import gc
import weakref

from rscylla.embedded import EmbeddedScylla


def test_an_unreferenced_session_stays_open_until_the_server_stops() -> None:
    with EmbeddedScylla() as scylla:
        session = weakref.ref(scylla.connect())
        gc.collect()
        kept = session()
        assert kept is not None
        assert not kept.is_shutdown
        assert kept.execute("SELECT cluster_name FROM system.local WHERE key = 'local'").one()
    assert kept.is_shutdown
