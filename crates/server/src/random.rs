//! The one door to randomness: ids and the jitter of retries.

/// Where the server gets its random numbers from.
pub trait Random: Send + Sync + 'static {
    /// Any number.
    fn next_u64(&self) -> u64;

    /// The tail of a new job id.
    fn tail(&self) -> u128 {
        (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64())
    }

    /// The jitter of a retry.
    fn jitter(&self) -> u32 {
        u32::try_from(self.next_u64() >> 32).unwrap_or(u32::MAX)
    }
}

/// The randomness of the machine.
#[derive(Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    fn next_u64(&self) -> u64 {
        // Without the system's randomness ids could collide: better to answer zero, which the store then
        // refuses as a repeat, than to invent weak ids. In practice this never fails once the system is up.
        getrandom::u64().unwrap_or(0)
    }
}
