//! The one door to randomness: ids and the jitter of retries.

use std::cell::RefCell;

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

/// Numbers asked of the system at once: an id needs two, and a call of its own for each stands out in profiles of
/// a batched submission.
const STOCK_COUNT: usize = 128;
const NUMBER_BYTES: usize = size_of::<u64>();

thread_local! {
    static STOCK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        STOCK.with_borrow_mut(|stock| {
            if stock.is_empty() {
                refill(stock);
            }
            stock.pop().unwrap_or(0)
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
fn refill(stock: &mut Vec<u64>) {
    let mut bytes = [0; STOCK_COUNT * NUMBER_BYTES];
    match getrandom::fill(&mut bytes) {
        Ok(()) => {
            let (numbers, _) = bytes.as_chunks::<NUMBER_BYTES>();
            stock.extend(numbers.iter().map(|number| u64::from_ne_bytes(*number)));
        }
        // In practice this never fails once the system is up; if it does, the log must say why ids collide.
        Err(error) => tracing::error!(%error, "the system gives no random numbers"),
    }
}

/// Bytes for a secret. Unlike an id, a secret that is not random is worse than none, so this can fail.
///
/// # Errors
/// When the system gives no random numbers.
#[expect(clippy::disallowed_methods, reason = "this is the door")]
pub(crate) fn secret_bytes() -> Result<[u8; 32], getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
