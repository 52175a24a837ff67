//! A pull worker: takes jobs of a queue, runs them, sometimes dies with them in its hands.

use std::sync::Arc;

use tidewheel_core::limits::SECOND_MS;
use tidewheel_core::names::Tenant;
use tidewheel_server::engine::{Take, Tenants};

use crate::conduct::Conduct;
use crate::history::Event;
use crate::runner;
use crate::world::World;

/// Takes and runs jobs for ever.
pub async fn run(world: Arc<World>, tenant: Tenant, queue: Arc<str>) {
    let dice = Arc::new(world.dice.fork());
    loop {
        let take = Take {
            tenants: Tenants::Only(vec![tenant.clone()]),
            queue: Arc::clone(&queue),
            worker: Arc::from("worker"),
            count_max: dice.count(1, 5),
            wait_ms: if world.is_calm() { 20_000 } else { dice.pick(&[0, 50, 1_000, 5_000], 50) },
            lease_ms: dice.between(world.lease_s_min(), 6) * SECOND_MS,
        };
        let jobs = world.call(|engine| async move { engine.take(take).await }).await.unwrap_or_default();
        let found_nothing = jobs.is_empty();
        for job in jobs {
            world.history.note(Event::Started(runner::start_of(&job)));
            let conduct = Conduct::roll(&dice, world.is_calm());
            tokio::spawn(runner::run(Arc::clone(&world), Arc::new(dice.fork()), job, conduct));
        }
        let pause_ms = if world.is_calm() { dice.between(1, 5) } else { dice.between(1, 300) };
        world.sleep_ms(if found_nothing { pause_ms + 100 } else { pause_ms }).await;
    }
}
