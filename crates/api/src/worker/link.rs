//! One connection to a server, and one stream on it.

use std::time::Duration;

use tokio::sync::mpsc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};

use super::config::WorkerConfig;
use super::error::Error;
use crate::proto::v1::worker_client::WorkerClient;
use crate::proto::v1::{ServerMessage, Subscribe, Welcome, WorkerMessage, server_message, worker_message};
use crate::tls::Speak;

/// Making a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// From the subscription to the welcome.
const WELCOME_WITHIN: Duration = Duration::from_secs(10);
const TENANT: &str = "tidewheel-tenant";
const AUTHORIZATION: &str = "authorization";

/// What the server says.
pub(super) type Heard = server_message::Message;

/// A connection.
pub(super) struct Link {
    channel: Channel,
    key: Option<MetadataValue<Ascii>>,
    tenant: Option<MetadataValue<Ascii>>,
}

/// A stream whose subscription holds.
pub(super) struct Opened {
    pub(super) welcome: Welcome,
    pub(super) say: Say,
    pub(super) hear: Hear,
}

impl Link {
    pub(super) async fn connect(config: &WorkerConfig) -> Result<Self, Error> {
        let unusable = |what: &str| Error::Setup(format!("{what} cannot be sent in a request"));
        let key = match &config.key {
            None => None,
            Some(key) => {
                let mut value: MetadataValue<Ascii> =
                    format!("Bearer {}", key.trim()).parse().map_err(|_| unusable("this key"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let tenant = config.tenant.as_ref().map(|tenant| tenant.parse()).transpose();
        let tenant = tenant.map_err(|_| unusable("this tenant"))?;
        let setup = |fault: &dyn std::fmt::Display| {
            Error::Setup(format!("{:?} is not a server's URL: {fault}", config.url))
        };
        if !["http://", "https://"].iter().any(|scheme| config.url.starts_with(scheme)) {
            return Err(setup(&"it begins with neither http:// nor https://"));
        }
        let connector = config.tls.connector(&config.url, Speak::Http2);
        let connector = connector.map_err(|fault| Error::Setup(fault.to_string()))?;
        let endpoint = Endpoint::from_shared(config.url.clone())
            .map_err(|fault| setup(&fault))?
            .connect_timeout(CONNECT_WITHIN);
        let channel = endpoint.connect_with_connector(connector).await.map_err(|fault| {
            Error::Unreachable { url: config.url.clone(), cause: crate::client::root_cause(&fault) }
        })?;
        Ok(Self { channel, key, tenant })
    }

    /// Opens a stream, subscribes and waits to be let in.
    pub(super) async fn open(self, subscribe: Subscribe) -> Result<Opened, Error> {
        let opening = self.subscribe(subscribe);
        match tokio::time::timeout(WELCOME_WITHIN, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(Error::Lost("the server did not answer the subscription".to_owned())),
        }
    }

    async fn subscribe(self, subscribe: Subscribe) -> Result<Opened, Error> {
        let (say, mut said) = mpsc::unbounded_channel();
        let say = Say(say);
        say.say(worker_message::Message::Subscribe(subscribe))?;
        let mut request = Request::new(futures_util::stream::poll_fn(move |context| said.poll_recv(context)));
        if let Some(key) = self.key {
            request.metadata_mut().insert(AUTHORIZATION, key);
        }
        if let Some(tenant) = self.tenant {
            request.metadata_mut().insert(TENANT, tenant);
        }
        let opened = WorkerClient::new(self.channel).work(request).await;
        let mut hear = Hear(opened.map_err(|status| Error::from_status(&status))?.into_inner());
        let server_message::Message::Welcome(welcome) = hear.next().await? else {
            return Err(Error::Lost("the server said something else before its welcome".to_owned()));
        };
        Ok(Opened { welcome, say, hear })
    }
}

/// The worker's half. What it says waits without bound, but everything of size is said only once what was said before
/// it has been answered.
pub(super) struct Say(mpsc::UnboundedSender<WorkerMessage>);

impl Say {
    pub(super) fn say(&self, message: worker_message::Message) -> Result<(), Error> {
        let message = WorkerMessage { message: Some(message) };
        self.0.send(message).map_err(|_| Error::Lost("the connection broke".to_owned()))
    }
}

/// The server's half.
pub(super) struct Hear(Streaming<ServerMessage>);

impl Hear {
    /// The next thing it says. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Result<Heard, Error> {
        loop {
            match self.0.message().await {
                Ok(Some(ServerMessage { message: Some(message) })) => return Ok(message),
                // Of a kind that a later server knows.
                Ok(Some(ServerMessage { message: None })) => {}
                Ok(None) => return Err(Error::Lost("the server ended it".to_owned())),
                Err(status) => return Err(Error::from_status(&status)),
            }
        }
    }
}
