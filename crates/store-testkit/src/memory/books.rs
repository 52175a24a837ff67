//! What evaluating an order reads of the model.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Schedule, ScheduleId};
use tidewheel_core::time::Timestamp;

use super::tables::Tables;
use tidewheel_store::evaluate::Books;
use tidewheel_store::{Error, HeldKey};

impl Books for Tables {
    fn read_job(&mut self, tenant: &Tenant, id: JobId) -> Result<Option<Arc<Job>>, Error> {
        Ok(self.job(tenant, id).cloned().map(Arc::new))
    }

    fn read_schedule(&mut self, tenant: &Tenant, id: ScheduleId) -> Result<Option<Arc<Schedule>>, Error> {
        Ok(self.plans.schedule(tenant, id).cloned().map(Arc::new))
    }

    fn add_schedule(&mut self, _: &Tenant, _: ScheduleId) {}

    fn read_calendar(&mut self, tenant: &Tenant, name: &str) -> Result<Option<Arc<Dates>>, Error> {
        Ok(self.plans.calendar(tenant, name).cloned())
    }

    fn read_name(&mut self, tenant: &Tenant, name: &Arc<str>) -> Result<Option<ScheduleId>, Error> {
        Ok(self.plans.named(tenant, name))
    }

    fn read_key(
        &mut self,
        now: Timestamp,
        tenant: &Tenant,
        key: &Arc<str>,
    ) -> Result<Option<HeldKey>, Error> {
        Ok(self.find_key(now, tenant, key))
    }
}
