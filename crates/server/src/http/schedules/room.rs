//! Room for new schedules, of tenants that may have only so many. Those whose keys are taken are there already, and need none.

use tidewheel_api::wire::fault::{At, Code, Faults};
use tidewheel_core::names::Tenant;
use tidewheel_store::IdempotencyClaim;

use crate::http::app::App;
use crate::http::problem::{Problem, refuse_faults};
use crate::http::repeats::is_taken;
use crate::http::reservations::Reserved;

/// What of a request there is room for. To be kept until it is stored.
pub(crate) struct Room {
    _reserved: Option<Reserved>,
    /// Which of the schedules there is no room for, and why. In their order.
    refused: Vec<(usize, String)>,
}

impl Room {
    /// Takes room for as many schedules with these keys as there is some for.
    pub(super) async fn take(
        app: &App,
        tenant: &Tenant,
        claims: &[Option<&IdempotencyClaim>],
    ) -> Result<Self, Problem> {
        let all = Self { _reserved: None, refused: Vec::new() };
        let Some(max) = app.access.directory().tenant(tenant).settings.schedules_count_max else {
            return Ok(all);
        };
        let count_of = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let mut reserved = app.scheduled.stand(&app.engine, tenant, count_of(claims.len()));
        reserved.take();
        let fit = reserved.fit(max, 1).await?;
        if fit.room >= count_of(claims.len()) {
            return Ok(Self { _reserved: Some(reserved), ..all });
        }
        let mut new = Vec::new();
        for (index, claim) in claims.iter().enumerate() {
            if !is_taken(app, tenant, *claim).await? {
                new.push(index);
            }
        }
        reserved.shrink(count_of(new.len()));
        let fit = reserved.fit(max, 1).await?;
        let taken = usize::try_from(fit.room).unwrap_or(usize::MAX).min(new.len());
        reserved.shrink(count_of(taken));
        let detail = refusal(fit.there, count_of(new.len()), max);
        let refused = new.into_iter().skip(taken).map(|index| (index, detail.clone())).collect();
        Ok(Self { _reserved: Some(reserved), refused })
    }

    /// Takes room for one schedule, or refuses it.
    pub(crate) async fn for_one(
        app: &App,
        tenant: &Tenant,
        claim: Option<&IdempotencyClaim>,
    ) -> Result<Self, Problem> {
        let mut room = Self::take(app, tenant, &[claim]).await?;
        let mut faults = Faults::default();
        for (_, detail) in room.refused.drain(..) {
            faults.add(Code::LimitReached, &At::ROOT, detail);
        }
        refuse_faults(faults)?;
        Ok(room)
    }

    /// Which there is no room for, and why.
    pub(super) fn refused(&self) -> &[(usize, String)] {
        &self.refused
    }
}

/// Why some of those that are asked for have no room.
fn refusal(there: u64, asked: u64, max: u64) -> String {
    let left = max.saturating_sub(there);
    if left == 0 {
        format!("the tenant has {there} schedules, and may have {max}")
    } else if asked > left {
        format!("the tenant has {there} schedules, asks for {asked} more, and may have {max}")
    } else {
        format!("the tenant has {there} schedules, others are being made, and it may have {max}")
    }
}
