//! Names to addresses, and addresses to connections: the only two things that a broker asks of the world outside.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;

pub trait World: Send + Sync + 'static {
    /// Every address of the name, asked once.
    fn resolve(&self, host: &str) -> impl Future<Output = io::Result<Vec<IpAddr>>> + Send;

    fn dial(&self, address: SocketAddr) -> impl Future<Output = io::Result<TcpStream>> + Send;
}

/// The host's own resolver and plain TCP.
#[derive(Debug, Clone, Copy)]
pub struct System;

impl World for System {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|found| found.ip()).collect())
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }
}
