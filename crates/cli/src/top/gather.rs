//! Asking the server: a handful of cheap calls per look. What the key may not see is left out, and named.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tidewheel_api::client::{Call, Client, ClientConfig, Error};
use tidewheel_server::clock::{Clock, SystemClock};

use super::answers::{Counted, Overview, Tenants};
use super::exposition::Metrics;
use super::frame::{Answers, Frame, Starts};

/// One call; a look is better late than never, but nobody waits a minute for it.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Tenants whose jobs are counted, each by a call of its own.
const TENANTS_ASKED_COUNT_MAX: usize = 50;
/// Workers that are shown.
const WORKERS_ASKED_COUNT_MAX: usize = 200;
/// Who acts where nobody is named.
const TENANT_DEFAULT: &str = "default";

/// Looks at a server again and again.
pub(super) struct Gatherer {
    config: ClientConfig,
    client: Client,
    /// One for each tenant that is asked about.
    others: BTreeMap<String, Client>,
    clock: SystemClock,
    /// What the look before saw, by which rates are told.
    before: Option<Starts>,
}

/// An answer, or why the key may not have it.
enum Part<T> {
    Seen(T),
    Forbidden,
}

impl<T: Default> Part<T> {
    /// What was seen; notes what was not.
    fn or_note(self, absent: &mut Vec<&'static str>, what: &'static str) -> T {
        match self {
            Self::Seen(seen) => seen,
            Self::Forbidden => {
                absent.push(what);
                T::default()
            }
        }
    }
}

impl Gatherer {
    /// Of that server, as that caller.
    pub(super) fn new(config: ClientConfig) -> Result<Self, Error> {
        let config = ClientConfig { timeout: CALL_TIMEOUT, ..config };
        let client = Client::new(config.clone())?;
        Ok(Self { config, client, others: BTreeMap::new(), clock: SystemClock::new(), before: None })
    }

    /// One look.
    pub(super) async fn look(&mut self) -> Result<Frame, Error> {
        let overview: Overview = self.client.send(&Call::get(&["overview"])).await?.json()?;
        let mut absent = Vec::new();
        let cluster =
            self.part(&Call::get(&["cluster"])).await?.or_note(&mut absent, "nodes and shards (viewer)");
        let limit = WORKERS_ASKED_COUNT_MAX.to_string();
        let workers = self.part(&Call::get(&["workers"]).query("limit", &limit)).await?;
        let workers = workers.or_note(&mut absent, "workers (viewer)");
        let metrics = self.metrics().await?;
        if metrics.is_none() {
            absent.push("other tenants and their queues (admin)");
        }
        let metrics = metrics.unwrap_or_default();
        let tenants: Tenants = self
            .part(&Call::get(&["tenants"]).query("limit", "1000"))
            .await?
            .or_note(&mut absent, "weights (viewer)");
        let own = self.config.tenant.clone();
        let own =
            own.or_else(|| tenants.items.first().filter(|_| tenants.items.len() == 1).map(|t| t.id.clone()));
        let own = own.unwrap_or_else(|| TENANT_DEFAULT.to_owned());
        let (counts, uncounted) = self.counts(others(&own, &overview, &tenants, &metrics)).await?;
        let starts = Starts {
            at_ms: self.clock.monotonic_ms(),
            by_tenant: metrics.starts.clone(),
            of_others: metrics.starts_of_others,
        };
        let answers = Answers {
            url: self.client.url().to_owned(),
            own,
            overview,
            cluster,
            workers,
            tenants,
            metrics,
            counts,
            uncounted,
            absent,
        };
        let frame = answers.into_frame(self.before.as_ref(), &starts);
        self.before = Some(starts);
        Ok(frame)
    }

    async fn part<T: DeserializeOwned>(&self, call: &Call) -> Result<Part<T>, Error> {
        match self.client.send(call).await {
            Ok(answer) => answer.json().map(Part::Seen),
            Err(error) if is_forbidden(&error) => Ok(Part::Forbidden),
            Err(error) => Err(error),
        }
    }

    async fn metrics(&self) -> Result<Option<Metrics>, Error> {
        match self.client.send(&Call::get_outside(&["metrics"])).await {
            Ok(answer) => Ok(Some(Metrics::read(&String::from_utf8_lossy(&answer.body)))),
            Err(error) if is_forbidden(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Jobs by state of the first of these tenants; and how many more there are.
    async fn counts(
        &mut self,
        mut names: Vec<String>,
    ) -> Result<(BTreeMap<String, BTreeMap<String, u64>>, usize), Error> {
        let uncounted = names.len().saturating_sub(TENANTS_ASKED_COUNT_MAX);
        names.truncate(TENANTS_ASKED_COUNT_MAX);
        let mut counts = BTreeMap::new();
        for name in names {
            let client = match self.others.get(&name) {
                Some(client) => client.clone(),
                None => {
                    let config = ClientConfig { tenant: Some(name.clone()), ..self.config.clone() };
                    let client = Client::new(config)?;
                    self.others.insert(name.clone(), client.clone());
                    client
                }
            };
            match client.send(&Call::get(&["jobs", "count"])).await {
                Ok(answer) => drop(counts.insert(name, answer.json::<Counted>()?.counts)),
                Err(error) if is_forbidden(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((counts, uncounted))
    }
}

/// All tenants that are known but the own one, those most worth a look first: who has most waiting, also if nothing of
/// it has ever started, then who has started most.
fn others(own: &str, overview: &Overview, tenants: &Tenants, metrics: &Metrics) -> Vec<String> {
    let waiting = overview.tenants.iter().flatten().map(|tenant| &tenant.id);
    let mut rest: Vec<&String> =
        tenants.items.iter().map(|tenant| &tenant.id).chain(metrics.starts.keys()).collect();
    rest.sort_by_key(|name| (Reverse(metrics.starts.get(*name).copied().unwrap_or(0)), *name));
    let mut seen = BTreeSet::from([own]);
    waiting.chain(rest).filter(|name| seen.insert(name.as_str())).cloned().collect()
}

/// Whether the key is fine and may not see this.
fn is_forbidden(error: &Error) -> bool {
    error.problem().is_some_and(|problem| problem.status == 403)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tenants_with_most_waiting_are_asked_about_first_also_if_nothing_of_theirs_started() {
        let overview = serde_json::from_value(json!({"tenants": [
            {"id": "quiet", "waiting": 10_000}, {"id": "own", "waiting": 20}, {"id": "busy", "waiting": 7},
        ]}));
        let tenants =
            serde_json::from_value(json!({"items": [{"id": "set"}, {"id": "quiet"}, {"id": "own"}]}));
        let metrics = Metrics {
            starts: BTreeMap::from(
                [("busy", 9), ("a", 1), ("b", 5), ("own", 99)].map(|(id, count)| (String::from(id), count)),
            ),
            ..Metrics::default()
        };
        let names = others("own", &overview.unwrap(), &tenants.unwrap(), &metrics);
        assert_eq!(names, ["quiet", "busy", "b", "a", "set"]);
    }

    #[test]
    fn who_may_not_see_other_tenants_is_told_of_none() {
        let overview = serde_json::from_value(json!({"tenants": null})).unwrap();
        let tenants = serde_json::from_value(json!({"items": [{"id": "own"}]})).unwrap();
        assert!(others("own", &overview, &tenants, &Metrics::default()).is_empty());
    }
}
