//! Ids as PostgreSQL's `uuid`: sixteen bytes that sort as they stand.

use bytes::BytesMut;
use tidewheel_core::id::JobId;
use tidewheel_core::schedule::ScheduleId;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// Sixteen bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Uid(pub(crate) [u8; 16]);

impl From<JobId> for Uid {
    fn from(id: JobId) -> Self {
        Self(*id.as_bytes())
    }
}

impl From<ScheduleId> for Uid {
    fn from(id: ScheduleId) -> Self {
        Self(*id.as_bytes())
    }
}

impl Uid {
    pub(crate) const fn job(self) -> JobId {
        JobId::from_bytes(self.0)
    }

    pub(crate) const fn schedule(self) -> ScheduleId {
        ScheduleId::from_bytes(self.0)
    }
}

type Fault = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Uid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Uid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(UUID);
}
