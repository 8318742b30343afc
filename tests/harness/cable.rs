//! A cable between a person and the gateway that can be cut: the bytes stop, and nobody says goodbye. It reads nothing of
//! what passes.

use anyhow::{Context as _, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::Rig;

#[derive(Debug)]
pub struct Cable {
    /// Where the gateway is reached through it.
    pub endpoint: String,
    /// Dropping it closes both sockets at once, in the middle of whatever passes.
    _passing: JoinSet<()>,
}

impl Cable {
    /// For one connection.
    pub async fn lay(rig: &Rig) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (scheme, far) = rig.ready.gateway.split_once("://").context("an endpoint")?;
        let far = far.to_owned();
        let mut passing = JoinSet::new();
        passing.spawn(async move {
            // A failure shows as a connection that ends.
            if let Ok((mut near, _)) = listener.accept().await
                && let Ok(mut far) = TcpStream::connect(far).await
            {
                drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
            }
        });
        Ok(Self { endpoint: format!("{scheme}://127.0.0.1:{port}"), _passing: passing })
    }

    pub fn cut(self) {}
}
