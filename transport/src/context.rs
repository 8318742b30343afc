//! What a service gets from its process: credentials, readiness, the tracker of its tasks and the signal to stop.

use std::{sync::Arc, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Material, Readiness};

/// Handed to a service's `bind`; cheap to clone, every clone is the same process.
#[derive(Clone, Debug)]
pub struct Context {
    /// The process's certificates and whom it trusts.
    pub material: Arc<Material>,
    /// Conditions of `/readyz` and of the health service.
    pub ready: Readiness,
    /// Owner of every background task; the process waits for it within the drain limit.
    pub tracker: TaskTracker,
    /// Cancelled when the process is asked to stop.
    pub shutdown: CancellationToken,
    /// How long open requests may go on after that.
    pub drain_timeout: Duration,
}

impl Context {
    pub(crate) fn new(material: Arc<Material>, drain_timeout: Duration) -> Self {
        Self {
            material,
            ready: Readiness::new(),
            tracker: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            drain_timeout,
        }
    }

    /// A context without a process around it, for tests and for one-shot clients such as the command line.
    pub fn for_test(material: Arc<Material>) -> Self {
        Self::new(material, Duration::from_secs(5))
    }
}
