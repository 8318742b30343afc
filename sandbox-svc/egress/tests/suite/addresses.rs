//! Which addresses a name may lead to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use egress::{Standing, standing};
use proptest::prelude::*;

fn of(text: &str) -> Standing {
    standing(text.parse().unwrap())
}

#[test]
fn public_addresses_are_global() {
    for text in [
        "1.1.1.1",
        "8.8.8.8",
        "93.184.216.34",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2606:2800:220:1:248:1893:25c8:1946",
        "2a00:1450:4001:81b::200e",
        "2001:200::1",
        "64:ff9b::8.8.8.8",
        "::ffff:8.8.8.8",
    ] {
        assert_eq!(of(text), Standing::Global, "{text}");
    }
}

#[test]
fn addresses_of_this_machine_and_site_are_private() {
    for text in [
        "127.0.0.1",
        "127.255.255.254",
        "10.0.0.5",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "100.64.0.1",
        "100.127.255.255",
        "::1",
        "fc00::1",
        "fdff::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::192.168.0.1",
    ] {
        assert_eq!(of(text), Standing::Private, "{text}");
    }
}

#[test]
fn metadata_groups_documentation_and_tunnels_are_never_dialled() {
    for text in [
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "192.0.0.1",
        "192.0.0.170",
        "192.0.2.1",
        "192.52.193.1",
        "192.88.99.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::2",
        "::127.0.0.1",
        "::8.8.8.8",
        "::ffff:169.254.169.254",
        "::ffff:0:8.8.8.8",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::8.8.8.8",
        "100::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "2002:808:808::1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "2606:2800:220:1:0:5efe:808:808",
        "2606:2800:220:1:200:5efe:a00:1",
    ] {
        assert_eq!(of(text), Standing::Never, "{text}");
    }
}

proptest! {
    /// A second opinion: what the standard library knows to be special is never global.
    #[test]
    fn what_the_standard_library_calls_special_is_not_global(bits in any::<u32>()) {
        let v4 = Ipv4Addr::from_bits(bits);
        let special = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
            || v4.is_broadcast() || v4.is_documentation() || v4.is_unspecified();
        prop_assert!(!special || standing(IpAddr::V4(v4)) != Standing::Global);
        prop_assert_eq!(standing(IpAddr::V6(v4.to_ipv6_mapped())), standing(IpAddr::V4(v4)));
        prop_assert_eq!(standing(IpAddr::V6(v4.to_ipv6_compatible())) == Standing::Global, false);
        let [a, b, c, d] = v4.octets();
        let nat64: Ipv6Addr = format!("64:ff9b::{a}.{b}.{c}.{d}").parse().unwrap();
        prop_assert_eq!(standing(IpAddr::V6(nat64)), standing(IpAddr::V4(v4)));
    }

    #[test]
    fn only_global_unicast_of_version_six_is_global(bits in any::<u128>()) {
        let v6 = Ipv6Addr::from_bits(bits);
        let unicast = v6.segments()[0] & 0xe000 == 0x2000;
        prop_assert!(unicast || standing(IpAddr::V6(v6)) != Standing::Global);
    }
}
