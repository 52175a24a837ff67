//! Whoever breaks things: from time to time one of the run's faults strikes.

use std::sync::Arc;
use std::time::Duration;

use tidewheel_core::limits::HOUR_MS;
use tidewheel_server::clock::Clock;

use crate::dice::Dice;
use crate::history::Event;
use crate::plan::Strike;
use crate::weather::Weather;
use crate::world::{ALONE, World};

/// Breaks things until the run's faulty time is over, then leaves a running server behind.
pub async fn run(world: &Arc<World>) {
    let dice = world.dice.fork();
    world.set_climate();
    let end_ms = world.clock.monotonic_ms() + world.plan.faulty_ms;
    while world.clock.monotonic_ms() < end_ms {
        world.sleep_ms(dice.between(500, 15_000)).await;
        let strikes = &world.plan.strikes;
        if let Some(strike) = strikes.get(dice.count(0, strikes.len().saturating_sub(1))) {
            act(world, &dice, *strike).await;
        }
    }
    world.calm_down();
    if world.engine().is_none() {
        world.start_server(ALONE).await;
    }
}

async fn act(world: &Arc<World>, dice: &Dice, strike: Strike) {
    match strike {
        Strike::Crash => {
            world.crash(ALONE);
            world.sleep_ms(dice.pick(&[0, 50, 2_000, 30_000], 50)).await;
            world.start_server(ALONE).await;
        }
        Strike::Drain => {
            world.drain(ALONE, dice.between(0, 8_000)).await;
            world.sleep_ms(dice.between(0, 3_000)).await;
            world.start_server(ALONE).await;
        }
        Strike::Outage => {
            let ms = dice.pick(&[300, 3_000, 20_000], 300);
            world.history.note(Event::Fault("the store is down, ms", ms));
            world.weathers().for_each(|weather| weather.take_down(ms));
        }
        Strike::FailedSync => {
            world.history.note(Event::Fault("a sync failed", 0));
            world.weathers().for_each(Weather::poison);
            world.sleep_ms(dice.between(0, 5_000)).await;
            world.crash(ALONE);
            world.start_server(ALONE).await;
        }
        Strike::ClockStep => {
            let size_ms = dice.pick(&[2, 700, 60_000, HOUR_MS], 700);
            let ms = if dice.percent(50) { size_ms } else { -size_ms };
            world.history.note(Event::Fault("the wall clock is set, ms", ms));
            world.clock.step(ms);
        }
        Strike::Pause => {
            let ms = dice.between(100, 40_000);
            world.history.note(Event::Fault("everything stands still, ms", ms));
            tokio::time::advance(Duration::from_millis(ms.unsigned_abs())).await;
        }
    }
}
