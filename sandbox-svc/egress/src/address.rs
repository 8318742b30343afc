//! Which addresses are on the public internet. An address that carries another one inside is judged by that one too;
//! what is not known to be public is not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How far an address may be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    Global,
    /// Of this machine or site: only for hosts that the administrator lists.
    Private,
    /// Never: metadata services, groups, documentation, tunnels into elsewhere.
    Never,
}

pub fn standing(address: IpAddr) -> Standing {
    match address {
        IpAddr::V4(address) => of_v4(address),
        IpAddr::V6(address) => of_v6(address),
    }
}

/// First address and length of each prefix of the special-purpose registry that no public host has.
const V4: [(Ipv4Addr, u32, Standing); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, Standing::Never),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Standing::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Standing::Private),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Standing::Private),
    (Ipv4Addr::new(169, 254, 0, 0), 16, Standing::Never),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Standing::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Standing::Never),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Standing::Never),
    (Ipv4Addr::new(192, 52, 193, 0), 24, Standing::Never),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Standing::Never),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Standing::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Standing::Never),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Standing::Never),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Standing::Never),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Standing::Never),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Standing::Never),
];

/// Inside 2000::/3, which is all that is given out for the internet.
const V6: [(Ipv6Addr, u32); 4] = [
    // Teredo, benchmarking, ORCHID and what else is for protocols.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    // 6to4: a tunnel to whatever address of version 4 is inside.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

fn of_v4(address: Ipv4Addr) -> Standing {
    let bits = address.to_bits();
    let found = V4.iter().find(|(first, length, _)| (bits ^ first.to_bits()) >> (32 - length) == 0);
    found.map_or(Standing::Global, |(_, _, standing)| *standing)
}

fn of_v6(address: Ipv6Addr) -> Standing {
    if address == Ipv6Addr::LOCALHOST {
        return Standing::Private;
    }
    let [.., c, d] = address.segments();
    let last = Ipv4Addr::from_bits(u32::from(c) << 16 | u32::from(d));
    match address.segments() {
        // ::ffff:a.b.c.d is the address of version 4 itself.
        [0, 0, 0, 0, 0, 0xffff, ..] => of_v4(last),
        // 64:ff9b::a.b.c.d is what a network without version 4 writes for it.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => of_v4(last),
        // Unique local, fc00::/7.
        [first, ..] if first & 0xfe00 == 0xfc00 => Standing::Private,
        [first, ..] if first & 0xe000 != 0x2000 => Standing::Never,
        // ISATAP: a tunnel inside a site, whatever the prefix.
        [_, _, _, _, 0x0000 | 0x0200, 0x5efe, ..] => Standing::Never,
        _ => {
            let bits = address.to_bits();
            let special =
                |(first, length): &(Ipv6Addr, u32)| (bits ^ first.to_bits()) >> (128 - length) == 0;
            if V6.iter().any(special) { Standing::Never } else { Standing::Global }
        }
    }
}
