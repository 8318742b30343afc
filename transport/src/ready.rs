//! Named conditions that must all hold before a process is ready; decides nothing about what they mean.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::watch;

/// A shared set of named conditions. A name counts from its first `set`; without any the process is ready.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<BTreeMap<&'static str, bool>>>);

impl Readiness {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeMap::new())))
    }

    /// States whether `condition` holds now.
    pub fn set(&self, condition: &'static str, holds: bool) {
        self.0.send_if_modified(|all| all.insert(condition, holds) != Some(holds));
    }

    /// Whether every condition holds.
    pub fn is_ready(&self) -> bool {
        self.0.borrow().values().all(|holds| *holds)
    }

    /// The conditions that do not hold.
    pub fn missing(&self) -> Vec<&'static str> {
        self.0.borrow().iter().filter(|(_, holds)| !**holds).map(|(name, _)| *name).collect()
    }

    /// Returns as soon as every condition holds.
    pub async fn wait(&self) {
        let mut changes = self.0.subscribe();
        // The sender lives in `self`, so that waiting cannot fail.
        if changes.wait_for(|all| all.values().all(|holds| *holds)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<BTreeMap<&'static str, bool>> {
        self.0.subscribe()
    }
}
