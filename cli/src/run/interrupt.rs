//! What a terminal or a supervisor sends to end a command.
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Exit, Explain};

/// SIGINT and SIGTERM from the moment it is made; none is lost between two waits.
#[derive(Debug)]
pub(crate) struct Interrupts {
    int: Signal,
    term: Signal,
}

#[derive(Debug, thiserror::Error)]
#[error("can not listen for signals")]
pub(crate) struct Deaf(#[from] io::Error);

impl Explain for Deaf {
    fn exit(&self) -> Exit {
        Exit::Failed
    }
    fn advice(&self) -> String {
        "check the limits of this process".to_owned()
    }
}

impl Interrupts {
    pub(crate) fn listen() -> Result<Self, Deaf> {
        Ok(Self { int: signal(SignalKind::interrupt())?, term: signal(SignalKind::terminate())? })
    }

    /// Returns with the next one. Cancel safe.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}
