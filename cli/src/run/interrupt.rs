//! What a terminal or a supervisor sends to end a command.
use tokio::signal::unix::{SignalKind, signal};

/// Returns on SIGINT or SIGTERM. Where signals can not be heard it never returns, and they end the process.
pub(crate) async fn interrupted() {
    let (Ok(mut int), Ok(mut term)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
    }
}
