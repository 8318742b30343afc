//! What the suite drives: five real processes over a throw-away directory, people at their gateway, an impostor with
//! agent-svc's certificate, and a reader of the ledger. It never replaces a service by a stand-in.

mod admin;
mod books;
mod cable;
mod engine;
mod hand;
mod impostor;
mod leftover;
mod person;
mod rig;
mod sample;

pub use admin::{Admin, Signatory};
pub use books::{Books, Line};
pub use cable::Cable;
pub use engine::Engine;
pub use hand::Hand;
pub use impostor::{Asked, Completed, Impostor, Order, Outcome};
pub use person::{Ask, Person, Prompted, Seen};
pub use rig::{Rig, Spec, programs};
pub use sample::{Manifest, Turn, manifest, script, script_with};

/// Everything that a test waits for comes within this, or the test fails and says what it waited for.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// `future`, or a failure that names what did not happen in time.
#[expect(clippy::panic, reason = "this is how a test fails")]
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// Asks again until `probe` has an answer; for facts that nobody announces, such as a process table.
pub async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut probe: impl FnMut() -> F,
) -> T {
    within(what, async {
        loop {
            if let Some(value) = probe().await {
                return value;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await
}
