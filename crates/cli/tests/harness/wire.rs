//! A wire to a database that can be cut: connections to its port go through to another, until they are ended, or nothing comes
//! through any more.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    /// Connections are ended, and new ones at once.
    Cut,
    /// Nothing comes through, and nobody is told.
    Silent,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    streams: Mutex<Vec<TcpStream>>,
}

/// The near end.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

impl Wire {
    /// One that leads to a port of this machine.
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = listener.local_addr().unwrap().port();
        let state = Mutex::new(State::Whole);
        let shared = Arc::new(Shared { state, changed: Condvar::new(), streams: Mutex::default() });
        let wire = Self { port: near, shared: Arc::clone(&shared) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || join(&shared, &stream, port));
            }
        });
        wire
    }

    fn set(&self, state: State) {
        *self.shared.state.lock().unwrap() = state;
        self.shared.changed.notify_all();
    }

    /// Ends all connections, and takes no more.
    pub(crate) fn cut(&self) {
        self.set(State::Cut);
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    /// Lets nothing through; what is sent arrives when it is mended.
    pub(crate) fn silence(&self) {
        self.set(State::Silent);
    }

    pub(crate) fn mend(&self) {
        self.set(State::Whole);
    }
}

/// Waits while nothing may come through; says whether something may.
fn may_pass(shared: &Shared) -> bool {
    let state = shared.state.lock().unwrap();
    let state = shared.changed.wait_while(state, |state| *state == State::Silent).unwrap();
    *state == State::Whole
}

fn join(shared: &Arc<Shared>, near: &TcpStream, port: u16) {
    if !may_pass(shared) {
        near.shutdown(Shutdown::Both).ok();
        return;
    }
    let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { return };
    for stream in [near, &far] {
        stream.set_nodelay(true).unwrap();
        shared.streams.lock().unwrap().push(stream.try_clone().unwrap());
    }
    let back = (Arc::clone(shared), far.try_clone().unwrap(), near.try_clone().unwrap());
    std::thread::spawn(move || copy(&back.0, back.1, back.2));
    copy(shared, near.try_clone().unwrap(), far);
}

fn copy(shared: &Shared, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 * 1_024];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || !may_pass(shared) || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        stream.shutdown(Shutdown::Both).ok();
    }
}
