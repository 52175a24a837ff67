//! Choices by a seed, so that a run breaks the same things in the same order again. What the processes make of it is theirs.

/// A stream of numbers (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Less than `count`, which is not nought.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.roll() % count).unwrap_or(0)
    }

    /// Between the two, in milliseconds.
    pub(crate) fn between_ms(&mut self, least: u64, most: u64) -> std::time::Duration {
        std::time::Duration::from_millis(least + self.roll() % most.saturating_sub(least).max(1))
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.roll() % 100 < percent
    }
}

const fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A number that is always the same for a text, for choices that must not depend on the order of threads.
pub(crate) fn fate(text: &str) -> u64 {
    mix(text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}
