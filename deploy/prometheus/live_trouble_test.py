"""A real Prometheus scrapes real servers that are in trouble: a disk that is slow, a disk that fills, a target that is
down, a certificate that ends, a node that dies, a database that is gone. Each alert on it must fire.

Run by scripts/test-alerts, after live_test.py. The full disk is a tmpfs in a namespace of its own, which not every system
lets one make; the cluster needs the database that scripts/with-postgres starts. What cannot be tried is said.

Usage: live_trouble_test.py TIDEWHEEL PROMETHEUS
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from pathlib import Path

from live_test import HERE, PATIENCE_S, Prometheus, Server, free_port, wait_for

SUBMITTERS_COUNT = 4
DISK_MIB = 320
# What is put on the disk at a time, and how often: it ends over 60 % full, and not so full that nothing is accepted.
BALLAST_MIB = 40
BALLAST_COUNT = 6


@contextlib.contextmanager
def scraped(tidewheel, prometheus_program, wrapped=(), flags=(), scheme="http"):
    """One server, and a Prometheus that scrapes it."""
    with tempfile.TemporaryDirectory(prefix="tidewheel-trouble-") as name, contextlib.ExitStack() as ends:
        folder = Path(name)
        (folder / "data").mkdir()
        wrapped = [part.replace("DATA", str(folder / "data")) for part in wrapped]
        server = Server(tidewheel, folder, wrapped=wrapped, flags=flags, scheme=scheme)
        ends.callback(lambda: server.stop(signal.SIGKILL))
        server.start()
        prometheus = Prometheus(prometheus_program, folder, f"127.0.0.1:{server.port}", scheme=scheme)
        ends.callback(prometheus.stop)
        wait_for("a few scrapes", lambda: (prometheus.value("count_over_time(up[5m])") or 0) >= 4)
        yield server, prometheus


def build_slow_sync(folder):
    """What makes the syncs of a program slow when it is loaded before the system's own."""
    library = Path(folder) / "slow_sync.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "slow_sync.c", "-ldl"], check=True)
    return library


def provoke_slow_syncs(server, prometheus, sign):
    """Each sync lasts, and so does each submission, which waits for one."""
    sign.touch()
    over = threading.Event()

    def submit():
        while not over.is_set():
            with contextlib.suppress(OSError):
                server.call("POST", "/v1/jobs", {"type": "t", "queue": "q", "delay": "1h"})

    for _ in range(SUBMITTERS_COUNT):
        threading.Thread(target=submit, daemon=True).start()
    try:
        prometheus.must_fire("TidewheelStoreSyncSlow", "TidewheelSubmitSlow")
    finally:
        over.set()


def provoke_a_filling_disk(server, prometheus):
    prometheus.must_fire("TidewheelDiskNearlyFull")
    # Where the server sees its disk, which nobody else does.
    folder = Path(f"/proc/{server.process.pid}/root{server.folder}/data")
    for part in range(BALLAST_COUNT):
        before = wait_for("the room", lambda: prometheus.value("tidewheel_disk_free_bytes"))
        (folder / f"ballast{part}").write_bytes(bytes(BALLAST_MIB << 20))
        wait_for("less room", lambda: (prometheus.value("tidewheel_disk_free_bytes") or before) < before)
    prometheus.must_fire("TidewheelDiskFilling")


def provoke_a_dead_target(server, prometheus):
    """Nobody listens where the job is to go."""
    server.must("/v1/jobs", {"type": "t", "target_url": f"http://127.0.0.1:{free_port()}/"})
    prometheus.must_fire("TidewheelTargetDown")


def make_certificate(folder):
    """One that ends within a week, and its key."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "7", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def provoke_trouble_with_certificates(tidewheel, prometheus_program):
    with tempfile.TemporaryDirectory(prefix="tidewheel-trouble-") as name:
        shown, other = Path(name) / "shown", Path(name) / "other"
        for folder in (shown, other):
            folder.mkdir()
            make_certificate(folder)
        flags = ["--tls-cert", shown / "cert.pem", "--tls-key", shown / "key.pem"]
        with scraped(tidewheel, prometheus_program, flags=flags, scheme="https") as (_, prometheus):
            prometheus.must_fire("TidewheelCertificateExpiring")
            # Does not go with the key.
            (shown / "cert.pem").write_bytes((other / "cert.pem").read_bytes())
            prometheus.must_fire("TidewheelCertificateStale")


class Wire:
    """What stands between the servers and their database, and can be cut."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.database = (parts.hostname, parts.port)
        self.listener = socket.create_server(("127.0.0.1", free_port()))
        port = self.listener.getsockname()[1]
        self.url = url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{port}")
        self.ends, self.is_cut = [], False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            if self.is_cut:
                near.close()
                continue
            far = socket.create_connection(self.database)
            self.ends += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(one, other), daemon=True).start()

    def carry(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        self.hang_up(one)
        self.hang_up(other)

    def hang_up(self, end):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        self.is_cut = True
        for end in self.ends:
            self.hang_up(end)


def provoke_trouble_in_a_cluster(tidewheel, prometheus_program, database):
    wire = Wire(database)
    with tempfile.TemporaryDirectory(prefix="tidewheel-trouble-") as name, contextlib.ExitStack() as ends:
        folder = Path(name)
        nodes = []
        for number in range(2):
            (folder / str(number)).mkdir()
            node = Server(tidewheel, folder / str(number), flags=["--store", wire.url])
            ends.callback(lambda node=node: node.stop(signal.SIGKILL))
            node.start()
            nodes.append(node)
        prometheus = Prometheus(prometheus_program, folder, *(f"127.0.0.1:{node.port}" for node in nodes))
        ends.callback(prometheus.stop)
        wait_for("both to have shards", lambda: prometheus.value("count(tidewheel_shards_owned > 0)") == 2)
        is_whole = "sum(tidewheel_shards_owned) == bool max(tidewheel_shards)"
        wait_for("every shard to have an owner", lambda: prometheus.value(is_whole) == 1)
        nodes[1].stop(signal.SIGKILL)
        prometheus.must_fire("TidewheelShardsWithoutOwner")
        # The other takes over by itself.
        wait_for("every shard to have an owner again", lambda: prometheus.value(is_whole) == 1)
        wire.cut()
        prometheus.must_fire("TidewheelStoreReadOnly")


def can_make_disks(wrapped):
    """Whether this system lets one mount in a namespace of one's own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [part.replace("DATA", folder) for part in wrapped]
        return subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def main():
    tidewheel, prometheus_program = (os.path.abspath(path) for path in sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="tidewheel-trouble-") as folder:
        sign = Path(folder) / "slow"
        wrapped = ["env", f"LD_PRELOAD={build_slow_sync(folder)}", f"SLOW_SYNC={sign}"]
        with scraped(tidewheel, prometheus_program, wrapped) as (server, prometheus):
            provoke_slow_syncs(server, prometheus, sign)
    with scraped(tidewheel, prometheus_program, flags=["--breaker-failures", "1"]) as (server, prometheus):
        provoke_a_dead_target(server, prometheus)
    if shutil.which("openssl"):
        provoke_trouble_with_certificates(tidewheel, prometheus_program)
    else:
        print("left out, as there is no openssl: TidewheelCertificateExpiring, TidewheelCertificateStale")
    mount = f'mount -t tmpfs -o size={DISK_MIB}m tmpfs "$0" && exec "$@"'
    wrapped = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "DATA"]
    if can_make_disks(wrapped):
        with scraped(tidewheel, prometheus_program, wrapped) as (server, prometheus):
            provoke_a_filling_disk(server, prometheus)
    else:
        print("left out, as nothing can be mounted here: TidewheelDiskNearlyFull, TidewheelDiskFilling")
    if database := os.environ.get("TIDEWHEEL_TEST_POSTGRES"):
        provoke_trouble_in_a_cluster(tidewheel, prometheus_program, database)
    else:
        print("left out, as there is no database: TidewheelShardsWithoutOwner, TidewheelStoreReadOnly")


if __name__ == "__main__":
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
