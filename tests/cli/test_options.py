"""Numbers, credentials, and the connection."""

from __future__ import annotations

from pathlib import Path

import pytest

import rscylla
from rscylla.cli.shared import options
from rscylla.cli.shared.options import Login


def test_credentials_go_together() -> None:
    assert Login(None, None).credentials() == (None, None)
    assert Login("ann", "secret").credentials() == ("ann", "secret")
    with pytest.raises(rscylla.ConfigError, match="a password requires a user name"):
        Login(None, "secret").credentials()


def test_a_password_may_come_from_a_file(tmp_path: Path) -> None:
    """The file wins: a password on the command line or in the environment may be that of another cluster."""
    file = tmp_path / "password"
    file.write_text(" päss word \r\nnot this\n", encoding="utf-8")
    assert Login("ann", None, file).credentials() == ("ann", " päss word ")
    assert Login("ann", "other", file).credentials() == ("ann", " päss word ")
    file.write_bytes(b"\xef\xbb\xbfsecret\r\n")  # with a byte order mark, as some editors write it
    assert Login("ann", None, file).credentials() == ("ann", "secret")
    with pytest.raises(rscylla.ConfigError, match="a password requires a user name"):
        Login(None, None, file).credentials()


@pytest.mark.parametrize(
    ("content", "wrong"), [(None, "cannot be read: No such file"), (b"\n", "no password"), (b"\xff\n", "not UTF-8")]
)
def test_password_files_that_hold_none(tmp_path: Path, content: bytes | None, wrong: str) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(rscylla.ConfigError, match=wrong) as raised:
        Login("ann", None, file).credentials()
    assert str(file) in str(raised.value)


def test_connections_do_not_show_their_password() -> None:
    assert "secret" not in repr(options.Connection(["h"], Login("ann", "secret"), tls_ca=Path("ca.pem")))
