"""Files of TLS: what cannot be used is told, and a server with a certificate of one's own authority is trusted."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from aiohttp import web

from tidewheel import Client, Patience, TidewheelError, Tls, Unreachable

QUICK = Patience(first_wait_s=0.001, longest_wait_s=0.01, total_wait_s=0.01)


def certificate(folder: Path) -> tuple[Path, Path]:
    """One that signs itself, and so is its own authority."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    cert, key = folder / "server.pem", folder / "server.key"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(
        command,
        check=True,
        capture_output=True,
    )
    return cert, key


async def test_a_server_is_trusted_by_the_file_of_its_authority_and_not_without(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)

    async def no_jobs(_: web.Request) -> web.Response:
        return web.json_response({"items": [], "next_cursor": None})

    app = web.Application()
    app.router.add_get("/v1/jobs", no_jobs)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        port = runner.addresses[0][1]
        async with Client(f"https://localhost:{port}", tls=Tls(ca_file=str(cert)), patience=QUICK) as client:
            assert (await client.list()).items == []
        async with Client(f"https://localhost:{port}", patience=QUICK) as client:
            with pytest.raises(Unreachable):
                await client.list()
    finally:
        await runner.cleanup()


async def test_files_that_cannot_be_used_are_told() -> None:
    async with Client("https://localhost:1", tls=Tls(ca_file="/nonexistent.pem"), patience=QUICK) as client:
        with pytest.raises(TidewheelError, match="files of TLS"):
            await client.list()


def test_the_environment_is_asked_for_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEWHEEL_CA_FILE", "/nonexistent.pem")
    with pytest.raises(TidewheelError):
        Tls().context()
