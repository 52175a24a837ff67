//! A way from here to there that can be blocked: what is sent meanwhile gets nowhere, and nobody is told. That is what a cut
//! line looks like to both ends; it works everywhere, without any rights.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock;

/// How often a quiet line looks whether it is blocked.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes on their way.
const BUFFER_BYTES: usize = 1 << 16;

/// Forwards connections.
#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    is_blocked: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Forwarder {
    /// Begins, on a free port of loopback.
    ///
    /// # Errors
    /// When there is no port.
    pub fn start(to: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (is_blocked, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let flags = (Arc::clone(&is_blocked), Arc::clone(&is_over));
        std::thread::spawn(move || accept(&listener, to, &flags.0, &flags.1));
        Ok(Self { address, is_blocked, is_over })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets nothing through any more, or again.
    pub fn block(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Ordering::SeqCst);
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the one who waits for connections.
        drop(TcpStream::connect_timeout(&self.address, LOOK));
    }
}

fn accept(listener: &TcpListener, to: SocketAddr, is_blocked: &Arc<AtomicBool>, is_over: &Arc<AtomicBool>) {
    for near in listener.incoming().map_while(Result::ok) {
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        let (is_blocked, is_over) = (Arc::clone(is_blocked), Arc::clone(is_over));
        std::thread::spawn(move || join(near, to, &is_blocked, &is_over));
    }
}

fn join(near: TcpStream, to: SocketAddr, is_blocked: &Arc<AtomicBool>, is_over: &Arc<AtomicBool>) {
    while is_blocked.load(Ordering::SeqCst) && !is_over.load(Ordering::SeqCst) {
        clock::pause(LOOK);
    }
    let Ok(far) = TcpStream::connect(to) else { return };
    for stream in [&near, &far] {
        stream.set_nodelay(true).ok();
        stream.set_read_timeout(Some(LOOK)).ok();
    }
    let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { return };
    let flags = (Arc::clone(is_blocked), Arc::clone(is_over));
    std::thread::spawn(move || pump(far_too, near_too, &flags.0, &flags.1));
    pump(near, far, is_blocked, is_over);
}

fn pump(mut from: TcpStream, mut to: TcpStream, is_blocked: &AtomicBool, is_over: &AtomicBool) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while !is_over.load(Ordering::SeqCst) {
        if is_blocked.load(Ordering::SeqCst) {
            clock::pause(LOOK);
            continue;
        }
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => continue,
            Err(_) => break,
        };
        // What was read while it was being blocked is held back with the rest.
        while is_blocked.load(Ordering::SeqCst) && !is_over.load(Ordering::SeqCst) {
            clock::pause(LOOK);
        }
        if buffer.get(..count).is_none_or(|bytes| to.write_all(bytes).is_err()) {
            break;
        }
    }
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}
