"""A real Prometheus scrapes a real server, and alerts are provoked: each must fire, none before.

Run by scripts/test-alerts. In a copy of the rules the waits in `for` are a second, what may be a minute old may be five
seconds old, and five minutes in which nothing starts are ten seconds; everything else is as shipped. Alerts that need a
slow or full disk or a cluster are provoked by live_trouble_test.py.

Usage: live_test.py TIDEWHEEL PROMETHEUS
"""

import contextlib
import http.server
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

PATIENCE_S = 90
POLL_S = 0.2
# More than the alert on slow targets bears with.
SLOW_TARGET_S = 11
# More than a lane holds in memory of one tenant and priority, and than the alert on backlogs bears with.
FLOOD_COUNT = 20_000
HERE = Path(__file__).resolve().parent


def wait_for(what, look):
    """Asks again and again until the answer is true; says what was missing otherwise."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(POLL_S)
    raise SystemExit(f"gave up waiting for {what}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Target(http.server.BaseHTTPRequestHandler):
    """Fails at /fail; takes its time at /slow; at /hang it answers only when it is let go."""

    let_go = threading.Event()
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/hang":
            self.let_go.wait(PATIENCE_S)
        elif self.path == "/slow":
            self.let_go.wait(SLOW_TARGET_S)
        with contextlib.suppress(OSError):
            self.send_response(400 if self.path == "/fail" else 200)
            self.send_header("content-length", "0")
            self.end_headers()

    def log_message(self, *_):
        pass


class Server:
    """The server under test; comes back on the same port and data."""

    def __init__(self, program, folder, wrapped=(), flags=(), scheme="http"):
        """`wrapped` is a command that runs the server; `flags` are more of its own."""
        self.folder, self.port, self.process = folder, free_port(), None
        self.command = [*wrapped, program, "serve", "--data", folder / "data", "--listen", f"127.0.0.1:{self.port}"]
        self.command += ["--drain", f"{PATIENCE_S}s", "--push-per-host", "2", *flags]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        # The certificates of these tests are nobody's.
        self.context = ssl._create_unverified_context() if scheme == "https" else None

    def start(self):
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_for("the server", lambda: self.is_ready())

    def is_ready(self):
        if self.process.poll() is not None:
            raise SystemExit("the server stopped: " + (self.folder / "server.log").read_text())
        try:
            return self.call("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def call(self, method, path, body=None, tenant="default"):
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", "tidewheel-tenant": tenant}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S, context=self.context) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read()

    def must(self, path, body):
        status, answer = self.call("POST", path, body)
        if status not in (200, 201):
            raise SystemExit(f"{path}: {status} {answer}")
        return answer

    def stop(self, how):
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE_S)


class Prometheus:
    """Scrapes servers with the shipped rules, waiting less."""

    def __init__(self, program, folder, *targets, scheme="http"):
        self.port = free_port()
        rules = re.sub(r"(?m)^(\s+for:) .*$", r"\1 1s", (HERE / "alerts.yaml").read_text())
        rules = re.sub(r"(age_seconds\S*) > 60\b", r"\1 > 5", rules)
        rules = rules.replace("rate(tidewheel_starts_total[5m])", "rate(tidewheel_starts_total[10s])")
        (folder / "alerts.yaml").write_text(rules)
        config = (HERE / "prometheus.yaml").read_text()
        config = config.replace('"127.0.0.1:7400"', json.dumps(targets)[1:-1]).replace("scrape_interval: 15s", "scrape_interval: 500ms")
        if scheme == "https":
            config = config.replace("job_name: tidewheel", "job_name: tidewheel\n    scheme: https\n    tls_config: {insecure_skip_verify: true}")
        (folder / "prometheus.yaml").write_text("global: {evaluation_interval: 500ms}\n" + config)
        with open(folder / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(
                [program, f"--config.file={folder / 'prometheus.yaml'}"]
                + [f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{self.port}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
            )

    def get(self, path):
        if self.process.poll() is not None:
            raise SystemExit("Prometheus stopped")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return json.loads(answer.read())["data"]
        except (OSError, ValueError):
            return None

    def value(self, query):
        found = self.get("/api/v1/query?" + urllib.parse.urlencode({"query": query}))
        return float(found["result"][0]["value"][1]) if found and found["result"] else None

    def firing(self):
        found = self.get("/api/v1/alerts") or {"alerts": []}
        return {alert["labels"]["alertname"] for alert in found["alerts"] if alert["state"] == "firing"}

    def must_fire(self, *names):
        for name in names:
            wait_for(f"{name}; firing are {self.firing()}", lambda name=name: name in self.firing())
            print(f"fired: {name}")

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def provoke_failures(server, prometheus, target):
    server.must("/v1/jobs", {"type": "t", "target_url": target + "/slow"})
    for _ in range(5):
        server.must("/v1/jobs", {"type": "t", "target_url": target + "/fail", "max_attempts": 1})
    prometheus.must_fire("TidewheelDeadLetters", "TidewheelDeliveriesFailing", "TidewheelTargetsSlow")


def provoke_want_of_workers(server, prometheus):
    """Nobody takes the jobs of a queue; when somebody does at last, they start late."""
    for _ in range(20):
        server.must("/v1/jobs", {"type": "t", "queue": "forsaken", "priority": "critical"})
    prometheus.must_fire("TidewheelQueueWithoutWorkers")
    wait_for(
        "jobs over five seconds late",
        lambda: (prometheus.value('tidewheel_queue_oldest_age_seconds{queue="forsaken"}') or 0) > 6,
    )
    # Somebody asks, but works for another tenant only.
    ask = {"worker": "w", "max": 1, "wait": "20s", "lease": "1s"}
    asking = ("POST", "/v1/queues/forsaken/take", ask, "other")
    threading.Thread(target=server.call, args=asking, daemon=True).start()
    prometheus.must_fire("TidewheelQueueBehind")
    server.must("/v1/jobs", {"type": "t", "queue": "prompt", "priority": "low"})
    server.must("/v1/queues/prompt/take", {"worker": "w", "max": 1, "wait": "20s", "lease": "10m"})
    # Taken, and never heard of again.
    taken = 0
    while taken < 20:
        ask = {"worker": "w", "max": 20, "wait": "20s", "lease": "1s"}
        jobs = server.must("/v1/queues/forsaken/take", ask)["jobs"]
        assert jobs, f"{taken} of 20 jobs were handed out"
        taken += len(jobs)
    prometheus.must_fire("TidewheelLagHigh", "TidewheelLagBudgetFastBurn", "TidewheelLagBudgetSlowBurn")
    prometheus.must_fire("TidewheelPriorityInversion", "TidewheelLeasesExpiring")


def provoke_a_flood(server, prometheus):
    for _ in range(2):
        server.must("/v1/jobs/batch", [{"type": "t", "queue": "flooded"}] * (FLOOD_COUNT // 2))
    prometheus.must_fire("TidewheelBacklogGrowing", "TidewheelOldestUnpromoted")


def provoke_a_crash(server, prometheus, target):
    # Two may be under way to a host, so one waits.
    for _ in range(3):
        server.must("/v1/jobs", {"type": "t", "target_url": target + "/hang", "timeout": "10m"})
    wait_for("pushes under way", lambda: (prometheus.value("tidewheel_in_flight") or 0) >= 2)
    prometheus.must_fire("TidewheelPushesBehind", "TidewheelNothingProcessed")
    server.stop(signal.SIGKILL)
    prometheus.must_fire("TidewheelDown")
    server.start()
    prometheus.must_fire("TidewheelRecoveries")
    wait_for("TidewheelDown to pass", lambda: "TidewheelDown" not in prometheus.firing())


def provoke_refusals(server, prometheus):
    """A server that stops, and waits for a push that does not end, refuses all else."""
    wait_for("a push under way again", lambda: (prometheus.value("tidewheel_in_flight") or 0) > 0)
    server.process.send_signal(signal.SIGTERM)
    refused = 0
    deadline = time.monotonic() + PATIENCE_S
    while "TidewheelRequestsFailing" not in prometheus.firing():
        refused += server.call("POST", "/v1/jobs", {"type": "t"})[0] == 503
        if time.monotonic() > deadline:
            raise SystemExit(f"TidewheelRequestsFailing does not fire after {refused} refusals")
    print("fired: TidewheelRequestsFailing")


def main():
    tidewheel, prometheus_program = (os.path.abspath(path) for path in sys.argv[1:3])
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Target)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    target = f"http://127.0.0.1:{listener.server_port}"
    with tempfile.TemporaryDirectory(prefix="tidewheel-alerts-") as name, contextlib.ExitStack() as ends:
        folder = Path(name)
        server = Server(tidewheel, folder)
        ends.callback(lambda: server.stop(signal.SIGKILL))
        server.start()
        prometheus = Prometheus(prometheus_program, folder, f"127.0.0.1:{server.port}")
        ends.callback(prometheus.stop)
        ends.callback(Target.let_go.set)
        wait_for("a few scrapes", lambda: (prometheus.value("count_over_time(up[5m])") or 0) >= 6)
        # The disk is not this test's to choose.
        of_disk = {"TidewheelDiskNearlyFull", "TidewheelDiskFilling", "TidewheelStoreSyncSlow"}
        # A scrape that came late is no fault of an idle server.
        wait_for("nothing to fire but the disk's", lambda: prometheus.value("up") == 1 and not prometheus.firing() - of_disk)
        provoke_failures(server, prometheus, target)
        provoke_want_of_workers(server, prometheus)
        provoke_a_flood(server, prometheus)
        provoke_a_crash(server, prometheus, target)
        provoke_refusals(server, prometheus)
        Target.let_go.set()
        server.process.wait(PATIENCE_S)
        prometheus.must_fire("TidewheelDown")


if __name__ == "__main__":
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
