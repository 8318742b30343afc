//! Which loopback ports a mesh listens on: one block below the ephemeral range, chosen once and remembered.
//! The block's first port is never served: holding it says that the block is taken, while it is looked at and used.
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use serde::{Deserialize, Serialize};
use transport::Service;

use super::Error;

const FIRST: u16 = 20_000;
const LAST: u16 = 32_751;
const BLOCK: u16 = 16;

/// A block of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Ports {
    first: u16,
}

/// Holds a block for as long as it lives.
#[derive(Debug)]
pub(crate) struct Guard(
    #[expect(dead_code, reason = "holding the socket is its purpose")] TcpListener,
);

impl Ports {
    /// Finds a block of which every port is free, beginning at a place that `seed` picks.
    pub(crate) fn choose(seed: u64) -> Result<(Self, Guard), Error> {
        let blocks = u64::from((LAST - FIRST) / BLOCK);
        (0..blocks)
            .filter_map(|step| u16::try_from((seed.wrapping_add(step)) % blocks).ok())
            .map(|block| Self { first: FIRST + block * BLOCK })
            .find_map(|ports| ports.hold().map(|guard| (ports, guard)).ok())
            .ok_or(Error::NoPorts { first: FIRST, last: LAST })
    }

    /// For settings that are only judged.
    pub(crate) fn unused() -> Self {
        Self { first: FIRST }
    }

    /// Takes a remembered block again; every port of it must be free.
    pub(crate) fn hold(self) -> Result<Guard, Error> {
        let guard = bind(self.first)?;
        for port in self.first + 1..self.first + BLOCK {
            drop(bind(port)?);
        }
        Ok(Guard(guard))
    }

    pub(crate) fn service(self, service: Service) -> SocketAddr {
        self.at(1 + index(service))
    }

    pub(crate) fn admin(self, service: Service) -> SocketAddr {
        self.at(6 + index(service))
    }

    pub(crate) fn auditors(self) -> SocketAddr {
        self.at(11)
    }

    pub(crate) fn first(self) -> u16 {
        self.first
    }

    fn at(self, offset: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.first + offset).into()
    }
}

const fn index(service: Service) -> u16 {
    match service {
        Service::Gateway => 0,
        Service::AgentSvc => 1,
        Service::SandboxSvc => 2,
        Service::ModelSvc => 3,
        Service::AuditSvc => 4,
    }
}

fn bind(port: u16) -> Result<TcpListener, Error> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .map_err(|source| Error::PortTaken { port, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_block_is_never_chosen_twice() {
        let (first, held) = Ports::choose(7).unwrap();
        let (second, _other) = Ports::choose(7).unwrap();
        assert_ne!(first, second);
        assert!(matches!(first.hold(), Err(Error::PortTaken { .. })));
        drop(held);
        first.hold().unwrap();
    }

    #[test]
    fn a_block_with_one_busy_port_is_passed_over() {
        let (ports, guard) = Ports::choose(99).unwrap();
        drop(guard);
        let _busy = TcpListener::bind(ports.auditors()).unwrap();
        assert_ne!(Ports::choose(99).unwrap().0, ports);
    }

    #[test]
    fn every_listener_has_its_own_port_below_the_ephemeral_range() {
        let (ports, _guard) = Ports::choose(3).unwrap();
        let mut all: Vec<u16> = Service::ALL
            .iter()
            .flat_map(|service| [ports.service(*service), ports.admin(*service)])
            .chain([ports.auditors()])
            .map(|addr| addr.port())
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 11);
        assert!(all.iter().all(|port| *port < 32_768));
    }
}
