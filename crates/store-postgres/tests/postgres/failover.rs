//! A database whose URL names two servers is followed from the one that hangs to the other, also where there are several
//! databases.

use std::time::Duration;

use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;
use tidewheel_store_postgres::open_all;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_postgres::config::Host;

use crate::database;

/// Long enough for a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(180);

/// What is said to the port goes on to the server, until it falls silent: from then on connections stand, and can even be made,
/// and nobody answers.
async fn wire(to: String) -> (u16, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let silence = watch::Sender::new(false);
    let silenced = silence.subscribe();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, to.clone(), silenced.clone()));
        }
    });
    (port, silence)
}

async fn carry(mut client: TcpStream, to: String, mut silenced: watch::Receiver<bool>) {
    let mut server = TcpStream::connect(to).await.unwrap();
    let until_silent = async { drop(silenced.wait_for(|is_silent| *is_silent).await) };
    tokio::select! {
        biased;
        () = until_silent => {}
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
    }
    // Neither end is told: both stay open.
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn of_several_databases_one_that_hangs_is_left_for_its_other_server() {
    let (one, mut two) = (database::fresh(), database::fresh());
    let config: tokio_postgres::Config = two.url.parse().unwrap();
    let Some(Host::Tcp(name)) = config.get_hosts().first() else { panic!("the database has no name") };
    let there = format!("{name}:{}", config.get_ports()[0]);
    let (port, silence) = wire(there.clone()).await;
    let url = two.url.replacen(&there, &format!("127.0.0.1:{port},{there}"), 1);
    assert_ne!(url, two.url);
    two.url = url;
    // Each of the two is given half of it.
    two.connect = Duration::from_secs(10);
    two.silence = Duration::from_secs(2);
    // What is asked when it falls silent waits for so long.
    two.call = Duration::from_secs(15);
    let store = open_all(vec![one, two]).await.unwrap();
    let mut names = (0..).map(|n| Tenant::new(&format!("t{n}")).unwrap());
    let tenant = names.find(|tenant| Shard::of(tenant, 8).0 % 2 == 1).unwrap();
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let until_answered = async |ticks: &mut tokio::time::Interval| {
        while store.counts(Some(&tenant)).await.is_err() {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, until_answered(&mut ticks)).await.expect("the first server to answer");
    silence.send_replace(true);
    tokio::time::timeout(PATIENCE, until_answered(&mut ticks)).await.expect("the other server to be found");
    let until_written = async {
        while store.put_calendar(&tenant, "written", None).await.is_err() {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, until_written).await.expect("the other server to take writes");
    assert!(store.databases()[1].is_reachable);
    store.close().await.unwrap();
}
