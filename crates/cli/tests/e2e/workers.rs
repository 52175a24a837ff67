//! Workers in real processes: killed, stopped, cut off and drained, with hundreds of jobs in their hands.
#![allow(clippy::disallowed_methods, reason = "from outside, in real time")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidewheel_api::worker::{Context, Failure, Worker, WorkerConfig};

use crate::harness::pulse::Pulse;
use crate::harness::{Server, TIDEWHEEL, instant, now_ms, request, signal, until};

/// Jobs in the hands of a worker that comes to harm.
const HELD: usize = 200;
/// Runs until the worker that started it is gone.
const AS_LONG_AS_THE_WORKER: [&str; 3] = ["sh", "-c", "exec tail --pid=$PPID -f /dev/null"];

/// A `worker run` process.
struct WorkerProcess(Child);

impl WorkerProcess {
    fn start(server: &Server, flags: &[&str], command: &[&str]) -> Self {
        let dashes: &[&str] = if command.is_empty() { &[] } else { &["--"] };
        let child = Command::new(TIDEWHEEL)
            .args(["worker", "run", "--queue", "q"])
            .args(flags)
            .args(dashes)
            .args(command)
            .env("TIDEWHEEL_URL", server.url())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// SIGTERM; returns the exit code and the lines it printed.
    fn terminate(mut self) -> (Option<i32>, Vec<String>) {
        signal(self.pid(), "TERM");
        let stdout = BufReader::new(self.0.stdout.take().unwrap());
        let lines = stdout.lines().map_while(Result::ok).collect();
        (self.0.wait().unwrap().code(), lines)
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Only this test's own child; an error means it is gone already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn submit(server: &Server, count: usize, extra: &Value) -> Vec<String> {
    let mut job = json!({"type": "t", "queue": "q", "timeout": "10m"});
    job.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let answer = server.post("/v1/jobs/batch", &json!(vec![job; count]));
    assert_eq!(answer.status, 201, "{}", answer.text());
    let jobs = answer.json()["jobs"].as_array().unwrap().clone();
    jobs.iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

fn count(server: &Server, state: &str) -> usize {
    let answer = server.get(&format!("/v1/jobs/count?state={state}&queue=q"));
    usize::try_from(answer["count"].as_u64().unwrap()).unwrap()
}

fn until_count(server: &Server, state: &str, wanted: usize) {
    until(&format!("{wanted} jobs to be {state}"), || (count(server, state) == wanted).then_some(()));
}

fn until_draining(server: &Server) {
    until("the worker to drain", || {
        let workers = server.get("/v1/workers");
        workers["items"].as_array().unwrap().iter().any(|it| it["draining"] == true).then_some(())
    });
}

/// Another worker takes what the first lost, and no job runs more often than that. Only on a machine that stands still, any
/// of them may be taken for dead once more.
fn others_end_them_all(server: &Server, ids: &[String], pulse: &Pulse) {
    let healthy = WorkerProcess::start(server, &["--concurrency", "8"], &["true"]);
    until_count(server, "succeeded", ids.len());
    for id in ids {
        let attempt = server.get(&format!("/v1/jobs/{id}"))["attempt"].as_u64().unwrap();
        assert!(attempt == 2 || (attempt > 2 && !pulse.is_calm()), "{id} ran {attempt} times");
    }
    assert_eq!(healthy.terminate().0, Some(0));
}

#[test]
fn a_killed_worker_loses_none_of_the_jobs_in_its_hands() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let pulse = Pulse::watch();
    let ids = submit(&server, HELD, &json!({}));
    let worker = WorkerProcess::start(&server, &["--concurrency", "200"], &AS_LONG_AS_THE_WORKER);
    until_count(&server, "running", HELD);
    signal(worker.pid(), "KILL");
    others_end_them_all(&server, &ids, &pulse);
}

#[test]
fn a_stopped_worker_is_given_up_and_its_late_word_does_not_count() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let pulse = Pulse::watch();
    let ids = submit(&server, HELD, &json!({}));
    let worker = WorkerProcess::start(&server, &["--concurrency", "200"], &AS_LONG_AS_THE_WORKER);
    until_count(&server, "running", HELD);
    signal(worker.pid(), "STOP");
    others_end_them_all(&server, &ids, &pulse);
    signal(worker.pid(), "CONT");
    let (code, lines) = worker.terminate();
    assert_eq!(code, Some(0), "{lines:#?}");
    assert_eq!(count(&server, "succeeded"), HELD);
}

#[test]
fn a_drained_worker_lets_its_commands_end_and_a_second_signal_does_not_wait() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let gate = TempDir::new().unwrap();
    let open = gate.path().join("open");
    let script = format!("until [ -e {} ]; do sleep 0.05; done; echo '{{\"sent\": 3}}'", open.display());
    submit(&server, 3, &json!({}));
    let worker = WorkerProcess::start(&server, &["--concurrency", "2"], &["sh", "-c", &script]);
    until_count(&server, "running", 2);
    signal(worker.pid(), "TERM");
    // Otherwise it may take the third when the first is over.
    until_draining(&server);
    std::fs::write(&open, "").unwrap();
    until_count(&server, "succeeded", 2);
    drop(worker);
    let listed = server.get("/v1/jobs?state=succeeded&queue=q");
    assert_eq!(listed["items"][0]["result"], json!({"sent": 3}), "{listed}");

    // What ignores TERM is killed after the grace, and its job costs nothing.
    let stubborn = "trap '' TERM; while :; do sleep 0.1; done";
    let worker = WorkerProcess::start(&server, &["--grace", "1s", "--drain", "10m"], &["sh", "-c", stubborn]);
    until_count(&server, "running", 1);
    signal(worker.pid(), "TERM");
    // Two signals at once would be one: the second goes out when the first was heard.
    until_draining(&server);
    let (code, lines) = worker.terminate();
    assert_eq!(code, Some(0), "{lines:#?}");
    assert_eq!(count(&server, "running"), 0);
    assert_eq!(count(&server, "dead"), 0);
}

#[test]
fn each_exit_code_means_what_the_help_says() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let script = "p=$(cat); echo \"$TIDEWHEEL_TYPE got $p as $TIDEWHEEL_JOB_ID #$TIDEWHEEL_ATTEMPT\"; \
                  echo 'why' >&2; exit $(echo $TIDEWHEEL_TYPE | cut -c2-)";
    let worker = WorkerProcess::start(&server, &[], &["sh", "-c", script]);
    let submit = |kind: &str, extra: Value| {
        let mut job = json!({"type": kind, "queue": "q", "payload": {"n" : 1}});
        job.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        server.submit(&job)
    };
    let (done, dead) = (submit("x0", json!({})), submit("x3", json!({})));
    let again = submit("x75", json!({"max_attempts": 2, "retry": {"policy": "fixed", "base": "100ms"}}));
    let told = server.until_state(&done, "succeeded");
    assert_eq!(told["result"], json!(format!("x0 got {{\"n\":1}} as {done} #1")));
    for (id, error, attempt) in [(&dead, "exit 3: why", 1), (&again, "exit 75: why", 2)] {
        let job = server.until_state(id, "dead");
        assert_eq!((job["last_error"].as_str(), &job["attempt"]), (Some(error), &json!(attempt)), "{job}");
    }
    let (code, lines) = worker.terminate();
    assert_eq!(code, Some(0));
    let told = |id: &str, said: &str| lines.iter().any(|line| line.contains(id) && line.contains(said));
    assert!(told(&dead, "x3 #1  failed after"), "{lines:#?}");
    assert!(told(&again, "x75 #1  retried after") && told(&again, "x75 #2  failed after"), "{lines:#?}");
}

#[test]
fn a_payload_is_run_by_the_shell_its_environment_names() {
    let (data, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let server = Server::start(data.path());
    let own = folder.path().join("own-shell").display().to_string();
    std::os::unix::fs::symlink("/bin/sh", &own).unwrap();
    let worker = WorkerProcess::start(&server, &["--danger-run-payload"], &[]);
    let submit = |env: Value| {
        // A shell's own name is the one it was started by.
        let payload = json!({"command": "echo \"$0 for $TEAM\"", "env": env});
        server.submit(&json!({"type": "command", "queue": "q", "payload": payload, "timeout": "10m"}))
    };
    let usual = submit(json!({"TEAM": "ops"}));
    let named = submit(json!({"TEAM": "ops", "SHELL": own}));
    let lost = submit(json!({"SHELL": "own-shell"}));
    for (id, shell) in [(&usual, "/bin/sh"), (&named, own.as_str())] {
        let job = server.until_state(id, "succeeded");
        assert_eq!(job["result"], format!("{shell} for ops"), "{job}");
    }
    let job = server.until_state(&lost, "dead");
    assert!(job["last_error"].as_str().unwrap().contains("SHELL=own-shell: a shell is named by"), "{job}");
    assert_eq!(worker.terminate().0, Some(0));
}

#[test]
fn a_command_that_takes_too_long_or_is_cancelled_is_ended_with_all_it_started() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let pids = TempDir::new().unwrap();
    let script = format!("sleep 1000 & echo $! > {}/$TIDEWHEEL_JOB_ID; wait", pids.path().display());
    let pulse = Pulse::watch();
    let worker = WorkerProcess::start(&server, &["--grace", "1s"], &["sh", "-c", &script]);
    // None if its time was over before it began.
    let child_of = |id: &str| {
        until("the child's pid", || {
            let pid = std::fs::read_to_string(pids.path().join(id)).ok();
            match pid.and_then(|pid| pid.trim().parse::<u32>().ok()) {
                Some(pid) => Some(Some(pid)),
                None => (server.get(&format!("/v1/jobs/{id}"))["state"] == "dead").then_some(None),
            }
        })
    };
    let (slow, of_slow) = until("a command to begin in time", || {
        let id = server.submit(&json!({"type": "t", "queue": "q", "timeout": "10s", "max_attempts": 1}));
        child_of(&id).map(|child| (id, child))
    });
    let unwanted = server.submit(&json!({"type": "t", "queue": "q", "timeout": "10m"}));
    let of_unwanted = child_of(&unwanted).unwrap();
    assert_eq!(server.post(&format!("/v1/jobs/{unwanted}/cancel"), &json!({})).status, 200);
    let job = server.until_state(&slow, "dead");
    let is_told = job["last_error"].as_str().unwrap().starts_with("it took longer than 10 s");
    assert!(is_told || !pulse.is_calm(), "{job}");
    for child in [of_slow, of_unwanted] {
        until("the command's child to be gone", || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
            // One that nobody waited for yet is gone too.
            stat.map_or(true, |stat| stat.contains(") Z ")).then_some(())
        });
    }
    assert_eq!(worker.terminate().0, Some(0));
}

/// Forwards to the server, until it is cut; then again for the next connection.
struct Proxy {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Vec::new()));
        let streams = Arc::clone(&open);
        std::thread::spawn(move || {
            for inbound in listener.incoming().map_while(Result::ok) {
                let Ok(outbound) = TcpStream::connect(to) else { return };
                for (mut from, mut to) in [
                    (inbound.try_clone().unwrap(), outbound.try_clone().unwrap()),
                    (outbound.try_clone().unwrap(), inbound.try_clone().unwrap()),
                ] {
                    std::thread::spawn(move || {
                        std::io::copy(&mut from, &mut to).ok();
                        to.shutdown(Shutdown::Both).ok();
                    });
                }
                streams.lock().unwrap().extend([inbound, outbound]);
            }
        });
        Self { address, open }
    }

    /// Ends every connection, in the middle of whatever it carries.
    fn cut(&self) -> usize {
        let streams: Vec<_> = self.open.lock().unwrap().drain(..).collect();
        streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        streams.len()
    }
}

#[test]
fn a_stream_that_is_cut_again_and_again_loses_no_outcome() {
    const JOBS: usize = 3_000;
    const CUTS: usize = 10;
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let proxy = Proxy::start(server.address);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config =
        WorkerConfig { concurrency: 100, ..WorkerConfig::new(format!("http://{}", proxy.address), "q") };
    let (stopper, working) = runtime.block_on(async {
        let mut worker = Worker::connect(config).await.unwrap();
        worker.handle("t", |_: Context, _: Value| async move { Ok::<_, Failure>(()) });
        (worker.stopper(), tokio::spawn(worker.run()))
    });
    let mut cuts = 0;
    for part in 1..=CUTS {
        submit(&server, JOBS / CUTS, &json!({"max_attempts": 20}));
        // In the middle of the part: some are done, some are on their way.
        until("a part of the jobs", || {
            (count(&server, "succeeded") > (part - 1) * JOBS / CUTS).then_some(())
        });
        cuts += usize::from(proxy.cut() > 0);
        until_count(&server, "succeeded", part * JOBS / CUTS);
    }
    assert_eq!(cuts, CUTS);
    stopper.drain();
    runtime.block_on(working).unwrap().unwrap();
}

const CANCELLERS: usize = 4;

/// Submits so many jobs, one every 5 ms, and cancels each within a millisecond of its time; gives those that had not started.
fn cancel_at_their_time(server: &Server, count: usize, lead_ms: i64) -> Vec<String> {
    let first_ms = now_ms() + lead_ms;
    let due: Vec<i64> = (0..count).map(|n| first_ms + 5 * i64::try_from(n).unwrap()).collect();
    let jobs: Vec<Value> =
        due.iter().map(|at| json!({"type": "t", "queue": "q", "run_at": instant(at - now_ms())})).collect();
    let answer = server.post("/v1/jobs/batch", &json!(jobs));
    assert_eq!(answer.status, 201, "{}", answer.text());
    let ids: Vec<String> = answer.json()["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["id"].as_str().unwrap().to_owned())
        .collect();
    std::thread::scope(|scope| {
        let cancellers: Vec<_> = (0..CANCELLERS)
            .map(|own| {
                let (due, ids, address) = (&due, &ids, server.address);
                scope.spawn(move || {
                    let mut unstarted = Vec::new();
                    for n in (own..count).step_by(CANCELLERS) {
                        let at_ms = due[n] + [-1, 0, 1][n % 3];
                        let wait_ms = u64::try_from(at_ms - now_ms()).unwrap_or(0);
                        std::thread::sleep(Duration::from_millis(wait_ms));
                        let path = format!("/v1/jobs/{}/cancel", ids[n]);
                        let answer = request(address, "POST", &path, &[], b"{}").unwrap();
                        if answer.status == 200 && answer.json()["attempt"] == 0 {
                            unstarted.push(ids[n].clone());
                        }
                    }
                    unstarted
                })
            })
            .collect();
        cancellers.into_iter().flat_map(|canceller| canceller.join().unwrap()).collect()
    })
}

#[test]
fn an_acknowledged_cancel_never_starts() {
    const JOBS: usize = 1_000;
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let started = Arc::new(Mutex::new(BTreeSet::new()));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = WorkerConfig { concurrency: 100, ..WorkerConfig::new(server.url(), "q") };
    let (stopper, working) = runtime.block_on(async {
        let mut worker = Worker::connect(config).await.unwrap();
        let started = Arc::clone(&started);
        worker.handle("t", move |context: Context, _: Value| {
            started.lock().unwrap().insert(context.id().to_owned());
            async move { Ok::<_, Failure>(()) }
        });
        (worker.stopper(), tokio::spawn(worker.run()))
    });
    let (mut submitted, mut unstarted) = (0, Vec::new());
    // On a machine that stands still all may start before one is cancelled; then there are others, with more time before.
    for lead_ms in [1_000, 4_000, 16_000, 32_000] {
        unstarted = cancel_at_their_time(&server, JOBS, lead_ms);
        submitted += JOBS;
        if !unstarted.is_empty() {
            break;
        }
    }
    until("every job to end", || {
        (count(&server, "succeeded") + count(&server, "cancelled") == submitted).then_some(())
    });
    stopper.drain();
    runtime.block_on(working).unwrap().unwrap();
    let started = started.lock().unwrap();
    assert!(!unstarted.is_empty(), "no cancel came in time: nothing was tested");
    for id in unstarted {
        assert!(!started.contains(&id), "{id} was cancelled before it started, and started");
    }
}
