"""TLS towards a server: whom to trust, and what to show."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass

from .errors import TidewheelError


@dataclass(frozen=True)
class Tls:
    """Files, each as PEM; what is not given comes from the environment, as for the command line.

    Attributes:
        ca_file: authorities that servers must have their certificates from; by default what `TIDEWHEEL_CA_FILE`
            says, or those of the system.
        client_cert: a certificate to show to servers that ask for one; by default what `TIDEWHEEL_CLIENT_CERT` says.
        client_key: its private key, if it is not in the same file; by default what `TIDEWHEEL_CLIENT_KEY` says.
    """

    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None

    def context(self) -> ssl.SSLContext:
        """What handshakes go by.

        Raises:
            TidewheelError: a file cannot be read or used.
        """
        ca_file = self.ca_file or os.environ.get("TIDEWHEEL_CA_FILE") or None
        client_cert = self.client_cert or os.environ.get("TIDEWHEEL_CLIENT_CERT") or None
        client_key = self.client_key or os.environ.get("TIDEWHEEL_CLIENT_KEY") or None
        try:
            context = ssl.create_default_context(cafile=ca_file)
            if client_cert is not None:
                context.load_cert_chain(client_cert, client_key)
        except (OSError, ssl.SSLError) as error:
            raise TidewheelError(f"the files of TLS cannot be used: {error}") from error
        return context
