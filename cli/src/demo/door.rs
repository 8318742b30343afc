//! A listener on this host that nobody should be able to reach from inside a container. It counts who does.
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
};

use crate::error::{Exit, Explain};

#[derive(Debug)]
pub(crate) struct Door {
    listener: TcpListener,
    addr: SocketAddr,
}

#[derive(Debug, thiserror::Error)]
#[error("can not listen on this host")]
pub(crate) struct Shut(#[from] io::Error);

impl Explain for Shut {
    fn exit(&self) -> Exit {
        Exit::Failed
    }
    fn advice(&self) -> String {
        "check the network interfaces".to_owned()
    }
}

impl Door {
    /// On an address that a container with a network would reach, where this host has one.
    pub(crate) fn open() -> Result<Self, Shut> {
        let listener =
            TcpListener::bind((outward().unwrap_or_else(|| Ipv4Addr::LOCALHOST.into()), 0))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        Ok(Self { listener, addr })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How many connections came.
    pub(crate) fn knocks(&self) -> usize {
        std::iter::from_fn(|| self.listener.accept().ok()).count()
    }
}

/// The address that this host would send from; nothing is sent.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    socket.local_addr().ok().map(|addr| addr.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_is_counted() {
        let door = Door::open().unwrap();
        assert_eq!(door.knocks(), 0);
        let _knock = std::net::TcpStream::connect(door.addr()).unwrap();
        assert_eq!(door.knocks(), 1);
        assert_eq!(door.knocks(), 0);
    }
}
