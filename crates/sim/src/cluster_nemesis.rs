//! Whoever breaks clusters: strikes befall single nodes, or what lies between them, several at a time.

use std::sync::Arc;

use tidewheel_server::clock::Clock;
use tokio::task::JoinSet;

use crate::dice::Dice;
use crate::history::Event;
use crate::plan::ClusterStrike;
use crate::weather::PeerTrouble;
use crate::world::World;

/// How long a node stands still; its leases last fifteen seconds, and it trusts them for less.
const PAUSES_MS: [i64; 5] = [2_000, 10_000, 17_000, 20_000, 30_000];
/// How long something cannot be reached.
const CUTS_MS: [i64; 5] = [500, 4_000, 12_000, 17_000, 25_000];
/// How late news can be.
const LATE_MS_MAX: i64 = 8_000;

/// Breaks things until the run's faulty time is over, then leaves all nodes running behind.
pub async fn run(world: &Arc<World>) {
    let dice = world.dice.fork();
    world.set_climate();
    for node in 0..world.plan.nodes {
        set_clock(world, &dice, node);
    }
    let end_ms = world.clock.monotonic_ms() + world.plan.faulty_ms;
    let mut under_way = JoinSet::new();
    while world.clock.monotonic_ms() < end_ms {
        world.sleep_ms(dice.between(200, 8_000)).await;
        while under_way.try_join_next().is_some() {}
        let strikes = &world.plan.cluster_strikes;
        if let Some(strike) = strikes.get(dice.count(0, strikes.len().saturating_sub(1))) {
            under_way.spawn(act(Arc::clone(world), dice.fork(), *strike));
        }
    }
    while under_way.join_next().await.is_some() {}
    world.calm_down();
    for node in 0..world.plan.nodes {
        if world.engine_at(node).is_none() {
            world.start_server(node).await;
        }
    }
}

async fn act(world: Arc<World>, dice: Dice, strike: ClusterStrike) {
    let node = dice.count(0, world.plan.nodes.saturating_sub(1));
    match strike {
        ClusterStrike::Crash | ClusterStrike::Drain | ClusterStrike::Pause => {
            if world.engage(node) {
                strike_down(&world, &dice, strike, node).await;
                world.disengage(node);
            }
        }
        ClusterStrike::CutOff => {
            let (ms, hangs) = (dice.pick(&CUTS_MS, 500), dice.percent(50));
            world.history.note(Event::Fault("a node cannot reach the store, ms", ms));
            if let Some(weather) = world.weather(node) {
                weather.cut_off(ms, hangs);
            }
        }
        ClusterStrike::Silence => silence(&world, &dice, node),
        ClusterStrike::Outage => {
            let ms = dice.pick(&[300, 3_000, 20_000], 300);
            world.history.note(Event::Fault("the store is down, ms", ms));
            world.weathers().for_each(|weather| weather.take_down(ms));
        }
        ClusterStrike::ClockStep => set_clock(&world, &dice, node),
    }
}

async fn strike_down(world: &Arc<World>, dice: &Dice, strike: ClusterStrike, node: usize) {
    if strike == ClusterStrike::Pause {
        let ms = dice.pick(&PAUSES_MS, 17_000);
        world.history.note(Event::Fault("a node stands still, ms", ms));
        if let Some(clock) = world.node_clock(node) {
            clock.freeze(ms);
        }
        world.sleep_ms(ms).await;
        return;
    }
    if strike == ClusterStrike::Drain {
        world.drain(node, dice.between(0, 8_000)).await;
    } else {
        world.crash(node);
    }
    world.sleep_ms(dice.pick(&[0, 50, 2_000, 20_000], 50)).await;
    world.start_server(node).await;
}

/// News of one node do not reach another, or late; of some it is the same the other way round.
fn silence(world: &World, dice: &Dice, node: usize) {
    let other = (node + dice.count(1, world.plan.nodes.saturating_sub(1))) % world.plan.nodes.max(1);
    let ms = dice.pick(&CUTS_MS, 500);
    let trouble =
        if dice.percent(60) { PeerTrouble::Lost } else { PeerTrouble::Late(dice.between(100, LATE_MS_MAX)) };
    world.history.note(Event::Fault("news do not reach a node, ms", ms));
    let ways = if dice.percent(50) { vec![(node, other), (other, node)] } else { vec![(node, other)] };
    for (from, to) in ways {
        if let (Some(weather), Ok(from)) = (world.weather(to), u64::try_from(from)) {
            weather.trouble_news(from, trouble, ms);
        }
    }
}

fn set_clock(world: &World, dice: &Dice, node: usize) {
    let ms = dice.between(-world.plan.skew_ms_max, world.plan.skew_ms_max);
    if let Some(clock) = world.node_clock(node).filter(|_| world.plan.skew_ms_max > 0) {
        world.history.note(Event::Fault("the wall clock of a node is off, ms", ms));
        clock.set_ahead(ms);
    }
}
