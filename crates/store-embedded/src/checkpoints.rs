//! Checkpoints in `meta`: version byte 1, then postcard.

use serde::{Deserialize, Serialize};
use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Position, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Checkpoint, Cursor};

use crate::record::Unreadable;
use crate::versioned;

#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    shard: u16,
    frontier: u32,
    #[serde(borrow)]
    cursors: Vec<StoredCursor<'a>>,
}

#[derive(Serialize, Deserialize)]
struct StoredCursor<'a> {
    bucket: u32,
    tenant: &'a str,
    at: i64,
    id: [u8; 16],
}

pub(crate) fn encode(checkpoint: &Checkpoint) -> Vec<u8> {
    let cursors = checkpoint.cursors.iter().map(|cursor| StoredCursor {
        bucket: cursor.bucket.0,
        tenant: cursor.tenant.as_str(),
        at: cursor.position.at.as_ms(),
        id: *cursor.position.id.as_bytes(),
    });
    versioned::encode(&Stored {
        shard: checkpoint.shard.0,
        frontier: checkpoint.frontier.0,
        cursors: cursors.collect(),
    })
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Checkpoint, Unreadable> {
    let stored: Stored<'_> = versioned::decode(bytes, Unreadable::Nonsense("a checkpoint"))?;
    let cursors = stored.cursors.into_iter().map(|cursor| {
        Ok(Cursor {
            bucket: Bucket(cursor.bucket),
            tenant: Tenant::new(cursor.tenant).map_err(|_| Unreadable::Nonsense("a checkpoint"))?,
            position: Position { at: Timestamp::from_ms(cursor.at), id: JobId::from_bytes(cursor.id) },
        })
    });
    Ok(Checkpoint {
        shard: Shard(stored.shard),
        frontier: Bucket(stored.frontier),
        cursors: cursors.collect::<Result<_, Unreadable>>()?,
    })
}
