//! Somebody who owns a job and keeps changing it: one wish at a time, each repeated until it is answered.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Command;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::Order;

use crate::dice::Dice;
use crate::history::{Event, Wish};
use crate::world::{NoAnswer, World};

/// Tries to get an answer before the owner gives up.
const TRIES: usize = 12;

/// Has up to four wishes for a job, some of them right when it is due.
pub async fn follow(world: Arc<World>, dice: Dice, tenant: Tenant, id: JobId, run_at: Timestamp) {
    let mut due = run_at;
    for _ in 0..dice.between(1, 4) {
        let until_due_ms = due.since_ms(world.now()).clamp(0, 20_000);
        let wait_ms = match dice.between(0, 2) {
            0 => until_due_ms + dice.between(-3, 10),
            1 => dice.between(0, until_due_ms + 100),
            _ => dice.between(0, 5_000),
        };
        world.sleep_ms(wait_ms).await;
        if world.is_calm() {
            return;
        }
        let wish = roll(&dice, world.now());
        if let Wish::Amend(at) | Wish::Rerun(at) | Wish::Replay(at) = wish {
            due = at;
        }
        if !is_answered(&world, &dice, &tenant, id, wish).await {
            return;
        }
    }
}

fn roll(dice: &Dice, now: Timestamp) -> Wish {
    let at = now.plus_ms(dice.pick(&[0, 0, 5, 100, 2_500, 6_000], 0));
    match dice.between(0, 9) {
        0..=2 => Wish::Cancel,
        3..=4 => Wish::RunNow,
        5..=6 => Wish::Amend(at),
        7 => Wish::Rerun(at),
        8 => Wish::Replay(at),
        _ => Wish::Discard,
    }
}

const fn command_of(wish: Wish) -> Command {
    match wish {
        Wish::Cancel => Command::Cancel,
        Wish::RunNow => Command::RunNow,
        Wish::Amend(at) => Command::Amend { run_at: Some(at), priority: None },
        Wish::Rerun(run_at) => Command::Rerun { run_at },
        Wish::Replay(run_at) => Command::Replay { run_at, payload: None, target: None, timeout_ms: None },
        Wish::Discard => Command::Discard,
    }
}

/// Wishes until there is an answer; says whether there was one.
async fn is_answered(world: &World, dice: &Dice, tenant: &Tenant, id: JobId, wish: Wish) -> bool {
    for _ in 0..TRIES {
        let order = Order { tenant: tenant.clone(), id, command: command_of(wish), key: None };
        let answer = world.call(|engine| {
            world.history.note(Event::Wishing { id, wish });
            async move { engine.command(vec![order]).await }
        });
        match answer.await.map(|mut results| results.pop()) {
            Ok(Some(Ok(_))) => {
                world.history.note(Event::Granted { id, wish });
                return true;
            }
            Ok(Some(Err(_))) => {
                world.history.note(Event::Declined { id, wish });
                return true;
            }
            Ok(None) | Err(NoAnswer::NotSent | NoAnswer::Unclear) => {}
        }
        world.sleep_ms(dice.between(10, 2_000)).await;
    }
    false
}
