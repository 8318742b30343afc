//! Runs what an HTTP/2 connection spawns as tasks with an owner; nothing of it outlives the owner's word.

use hyper::rt::Executor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Handed to HTTP/2 as its executor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    pub(crate) tracker: TaskTracker,
    /// Ends all of them at once.
    pub(crate) cut: CancellationToken,
}

impl<F> Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        let cut = self.cut.clone();
        self.tracker.spawn(async move {
            cut.run_until_cancelled(task).await;
        });
    }
}
