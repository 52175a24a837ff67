//! Stands between a server and its database, hands on what both say, and counts round trips: a question is what the server
//! sends before it hears anything, in however many pieces.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::stopwatch::PATIENCE;

const PIECE_BYTES: usize = 256 << 10;
/// How an answer of PostgreSQL ends, outside of a transaction.
const READY_FOR_QUERY: &[u8] = b"Z\0\0\0\x05I";

/// The proxy; gone when dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    trips: Arc<AtomicU64>,
    connections: Connections,
    accepting: AbortHandle,
}

/// A statement to say in between, and who waits for its end.
type Statement = (Arc<str>, oneshot::Sender<()>);
type Connections = Arc<Mutex<Vec<mpsc::Sender<Statement>>>>;

impl Proxy {
    /// Listens on a free port of the loopback.
    pub(crate) async fn start(database: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listening as a database")?;
        let address = listener.local_addr()?;
        let (trips, connections) = (Arc::new(AtomicU64::new(0)), Connections::default());
        let (counted, open) = (Arc::clone(&trips), Arc::clone(&connections));
        let accepting = tokio::spawn(async move {
            while let Ok((server, _)) = listener.accept().await {
                let (tell, told) = mpsc::channel(1);
                open.lock().unwrap_or_else(PoisonError::into_inner).push(tell);
                tokio::spawn(join(server, database, Arc::clone(&counted), told));
            }
        })
        .abort_handle();
        Ok(Self { address, trips, connections, accepting })
    }

    /// Answers so far, of all connections.
    pub(crate) fn trips(&self) -> u64 {
        self.trips.load(Ordering::SeqCst)
    }

    /// Has every connection say this once nothing is under way on it, as if the server had; the server hears nothing of it.
    pub(crate) async fn say_on_all(&self, statement: &str) -> anyhow::Result<()> {
        let statement: Arc<str> = statement.into();
        let all = self.connections.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for connection in all {
            let (done, ended) = oneshot::channel();
            // One that was closed says nothing.
            if connection.send((Arc::clone(&statement), done)).await.is_ok() {
                drop(tokio::time::timeout(PATIENCE, ended).await.context("the database does not answer")?);
            }
        }
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Until either side has no more to say; a connection that breaks is the server's to report.
async fn join(
    mut server: TcpStream,
    database: SocketAddr,
    trips: Arc<AtomicU64>,
    mut told: mpsc::Receiver<Statement>,
) -> std::io::Result<()> {
    let mut database = TcpStream::connect(database).await?;
    server.set_nodelay(true)?;
    database.set_nodelay(true)?;
    let (mut question, mut answer) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let (mut is_asked, mut is_idle) = (false, false);
    loop {
        tokio::select! {
            length = server.read(&mut question) => {
                let Some(piece) = some(question.get(..length?)) else { return Ok(()) };
                (is_asked, is_idle) = (true, false);
                database.write_all(piece).await?;
            }
            length = database.read(&mut answer) => {
                let Some(piece) = some(answer.get(..length?)) else { return Ok(()) };
                if std::mem::take(&mut is_asked) {
                    trips.fetch_add(1, Ordering::SeqCst);
                }
                is_idle = piece.ends_with(READY_FOR_QUERY);
                server.write_all(piece).await?;
            }
            Some((statement, done)) = told.recv(), if is_idle => {
                say(&mut database, &statement).await?;
                done.send(()).ok();
            }
        }
    }
}

fn some(piece: Option<&[u8]>) -> Option<&[u8]> {
    piece.filter(|piece| !piece.is_empty())
}

/// Says a statement and hears the answer to its end: a simple query of PostgreSQL's protocol, up to `ReadyForQuery`.
async fn say(database: &mut TcpStream, statement: &str) -> std::io::Result<()> {
    let length = u32::try_from(statement.len() + 5).unwrap_or(u32::MAX);
    let mut message = vec![b'Q'];
    message.extend(length.to_be_bytes());
    message.extend(statement.as_bytes());
    message.push(0);
    database.write_all(&message).await?;
    loop {
        let kind = database.read_u8().await?;
        let length = database.read_u32().await?.saturating_sub(4);
        let mut body = vec![0; usize::try_from(length).unwrap_or(0)];
        database.read_exact(&mut body).await?;
        if kind == b'Z' {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_in_pieces_is_one_round_trip() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
        let mut asking = TcpStream::connect(proxy.address).await.unwrap();
        let (mut answering, _) = listener.accept().await.unwrap();
        let mut read = [0; 2];
        for round in 1..=3 {
            asking.write_all(b"??").await.unwrap();
            answering.read_exact(&mut read).await.unwrap();
            for _ in 0..2 {
                answering.write_all(b"!").await.unwrap();
                asking.read_exact(&mut read[..1]).await.unwrap();
            }
            assert_eq!(proxy.trips(), round);
        }
    }

    #[tokio::test]
    async fn what_is_said_in_between_is_neither_counted_nor_heard() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
        let mut asking = TcpStream::connect(proxy.address).await.unwrap();
        let (mut answering, _) = listener.accept().await.unwrap();
        asking.write_all(b"?").await.unwrap();
        answering.read_exact(&mut [0; 1]).await.unwrap();
        answering.write_all(READY_FOR_QUERY).await.unwrap();
        asking.read_exact(&mut [0; 6]).await.unwrap();
        let database = tokio::spawn(async move {
            let mut read = [0; 14];
            answering.read_exact(&mut read).await.unwrap();
            assert_eq!(&read, b"Q\0\0\0\x0dSELECT 1\0");
            // An answer of two messages, in two pieces.
            answering.write_all(b"C\0\0\0\x06x\0Z\0").await.unwrap();
            answering.write_all(b"\0\0\x05I").await.unwrap();
            answering
        });
        proxy.say_on_all("SELECT 1").await.unwrap();
        let mut answering = database.await.unwrap();
        let mut read = [0; 1];
        asking.write_all(b"?").await.unwrap();
        answering.read_exact(&mut read).await.unwrap();
        answering.write_all(b"!").await.unwrap();
        asking.read_exact(&mut read).await.unwrap();
        assert_eq!((&read, proxy.trips()), (b"!", 2));
    }
}
