"""TLS of the server's sockets, and of the sessions that its owner opens to it."""

from __future__ import annotations

import ssl
from pathlib import Path

import attrs

from ..errors import EmbeddedScyllaError

__all__ = ["Tls"]


@attrs.frozen
class Tls:
    """PEM files that the nodes use.

    Args:
        certificate: The nodes' certificate, with its chain. One serves all nodes: let it name 127.0.0.1, 127.0.0.2 ...
        key: Its private key, without a passphrase.
        client_ca: Authority that has to have signed the certificates of clients (mutual TLS); None asks for none.
    """

    certificate: Path = attrs.field(converter=Path)
    key: Path = attrs.field(converter=Path)
    client_ca: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))

    def server_context(self) -> ssl.SSLContext:
        """Return what the listening sockets need. Raises EmbeddedScyllaError for a file that cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context)
        if self.client_ca is not None:
            _trust(context, self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_context(self) -> ssl.SSLContext:
        """Return what a session of the owner needs: it trusts this very certificate, and shows it if one is asked for.

        With mutual TLS that only works if ``client_ca`` signed the nodes' certificate too.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # the driver connects by address, which the certificate need not name
        _trust(context, self.certificate)
        # The nodes' certificate is trusted for itself, without the authority that signed it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self.client_ca is not None:
            self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            # A passphrase would be asked for on the terminal: an empty one makes such a key an error instead.
            context.load_cert_chain(self.certificate, self.key, password="")
        except (OSError, ssl.SSLError) as error:
            raise EmbeddedScyllaError(
                f"the TLS certificate {str(self.certificate)!r} with the key {str(self.key)!r} cannot be used: {error};"
                " give PEM files that belong together, the key without a passphrase"
            ) from error


def _trust(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        raise EmbeddedScyllaError(
            f"the TLS certificates in {str(authority)!r} cannot be read: {error}; give a PEM file"
        ) from error
