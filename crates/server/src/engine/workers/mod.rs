//! Connected workers: who they are, what they hold, when they count as dead.
//!
//! | file | what it holds |
//! |---|---|
//! | `link` | a worker's side of it: what its stream calls and hears |
//! | `message` | what passes between the two |
//! | `unsent` | how much is on its way to one worker |
//! | `registry` | the scheduler's side: sessions and the jobs they hold |
//! | `view` | what can be said of them |

mod link;
mod message;
mod registry;
mod unsent;
mod view;

pub use link::{Pushes, WorkerLink};
pub(super) use message::{Hold, Opened, Opening, WorkerMessage};
pub use message::{Push, Refused, Resume, Stop, Subscription, Welcome};
pub(super) use registry::{Beginning, Holding, Session, SessionId, Workers};
pub(super) use unsent::Unsent;
pub(super) use view::Whose;
pub use view::WorkerView;
