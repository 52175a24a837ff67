//! TLS handshakes: how long, and how many at a time. Whoever connects and then says nothing, or a byte now and then, is
//! a handshake under way; there is room for fewer of those than for connections, and when it is full the one that has
//! taken longest gives way. An honest one takes a few round trips, so it is hardly ever that one.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::metrics::Handshake;
use crate::tls::Tls;

/// How long one handshake may take.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Handshakes under way at once, and never more than half of all connections.
const HANDSHAKES_COUNT_MAX: usize = 1_024;

/// Makes connections secret.
pub(super) struct Handshakes {
    tls: Arc<Tls>,
    count_max: usize,
    under_way: Mutex<UnderWay>,
}

#[derive(Default)]
struct UnderWay {
    next: u64,
    /// The oldest first; dropping one ends it.
    by_age: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One handshake's place among those under way.
struct Place<'a> {
    handshakes: &'a Handshakes,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.handshakes.under_way().by_age.remove(&self.number);
    }
}

impl Handshakes {
    pub(super) fn new(tls: Arc<Tls>, connections_max: usize) -> Self {
        let count_max = HANDSHAKES_COUNT_MAX.min(connections_max / 2).max(1);
        Self { tls, count_max, under_way: Mutex::default() }
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> (Place<'_>, oneshot::Receiver<()>) {
        let (keep, given_way) = oneshot::channel();
        let mut under_way = self.under_way();
        if under_way.by_age.len() >= self.count_max {
            under_way.by_age.pop_first();
        }
        let number = under_way.next;
        under_way.next += 1;
        under_way.by_age.insert(number, keep);
        (Place { handshakes: self, number }, given_way)
    }

    /// The connection, if its other end is who it should be, in time.
    pub(super) async fn shake(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let (_place, given_way) = self.begin();
        let accepting = TlsAcceptor::from(self.tls.config()).accept(stream);
        let ended = tokio::select! {
            biased;
            _ = given_way => Err((Handshake::CrowdedOut, io::ErrorKind::ResourceBusy.into())),
            accepted = tokio::time::timeout(HANDSHAKE_TIME_MAX, accepting) => match accepted {
                Ok(Ok(stream)) => Ok(stream),
                Ok(Err(fault)) => Err((Handshake::Failed, fault)),
                Err(_) => Err((Handshake::TimedOut, io::ErrorKind::TimedOut.into())),
            },
        };
        match ended {
            Ok(stream) => {
                self.tls.metrics().shook(Handshake::Done);
                Some(stream)
            }
            Err((how, fault)) => {
                self.tls.metrics().shook(how);
                tracing::debug!(error = %fault, "a TLS handshake came to nothing");
                None
            }
        }
    }
}
