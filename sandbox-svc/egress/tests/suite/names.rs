//! What a caller may write for a host and a port.

use egress::{BadTarget, Pattern, Target};
use proptest::prelude::*;

fn parse(text: &str) -> Result<String, BadTarget> {
    Target::parse(text.as_bytes()).map(|target| target.to_string())
}

#[test]
fn every_spelling_of_an_address_is_refused() {
    let spellings = "127.0.0.1:443 127.1:443 127.0.1:80 2130706433:80 0x7f000001:80 0x7f.1:80 0x7f.0.0.1:443 \
        0177.0.0.1:80 017700000001:80 127.0.0.0x1:80 1.2.3.0X4:80 0:443 00:443 0x0:443 1:443 10.0.0.5:443 \
        169.254.169.254:80 192.168.1.1:443 8.8.8.8:443 1.1:443 999.999.999.999:443 1.2.3.4.5:443 127.0.0.1.:443 \
        2130706433.:80 0x7f000001.:80 a.0x7f:443 a.1:443 registry.test.127:443 [::1]:443 [::ffff:127.0.0.1]:443 \
        [fe80::1%25eth0]:443 ::1:443 ::ffff:10.0.0.1:443 2001:db8::1:443 [127.0.0.1]:443 [registry.test]:443 \
        fe80::1%eth0:80 64:ff9b::a00:1:443 registry.test.0x:443";
    for text in spellings.split_ascii_whitespace() {
        assert_eq!(parse(text), Err(BadTarget::Address), "{text}");
    }
}

#[test]
fn what_is_no_plain_name_is_refused() {
    let texts = [
        "user@registry.test:443",
        "user:pass@registry.test:443",
        "registry.test:443@evil.test",
        "registry.test:443@evil.test:443",
        "registry.test%00.evil.test:443",
        "registry%2etest:443",
        "registry.test/:443",
        "registry.test/x:443",
        "https://registry.test:443",
        "registry.test?x:443",
        "registry.test#x:443",
        "registry.test\\.evil.test:443",
        "registry..test:443",
        "registry.test..:443",
        ".registry.test:443",
        ".:443",
        ":443",
        "-registry.test:443",
        "registry-.test:443",
        "reg_istry.test:443",
        "*.registry.test:443",
        "*:443",
        "registry.test,evil.test:443",
        "registry.test;evil.test:443",
        "registry.test&evil:443",
        "registry.t\u{435}st:443",
        "\u{ff52}egistry.test:443",
        "registry\u{3002}test:443",
        "registry.test\u{200b}:443",
        "\u{2460}.test:443",
        "regi\u{df}try.test:443",
        "registry.test\0:443",
        "registry.test\n:443",
        "registry.test\r:443",
        " registry.test:443",
        "registry.test :443",
        "registry.test:443 ",
        "registry.test:443\t",
    ];
    for text in texts {
        assert!(
            matches!(parse(text), Err(BadTarget::Name | BadTarget::Form | BadTarget::Port)),
            "{text:?}: {:?}",
            parse(text)
        );
    }
    assert_eq!(Target::parse(b"registry\xff.test:443"), Err(BadTarget::Name));
    let label = "a".repeat(64);
    assert_eq!(parse(&format!("{label}.test:443")), Err(BadTarget::Name));
    let long = format!("{}test:443", "abc.".repeat(63));
    assert_eq!(parse(&long), Err(BadTarget::Name));
}

#[test]
fn a_port_is_a_plain_number() {
    for text in
        ["0", "00443", "0443", "65536", "+443", "-1", "44e1", "0x1bb", "*", "", "443x", "https"]
    {
        assert_eq!(parse(&format!("registry.test:{text}")), Err(BadTarget::Port), "{text}");
    }
    assert_eq!(parse("registry.test"), Err(BadTarget::Form));
    assert_eq!(parse("registry.test:1"), Ok("registry.test:1".to_owned()));
    assert_eq!(parse("registry.test:65535"), Ok("registry.test:65535".to_owned()));
}

#[test]
fn case_and_one_trailing_dot_are_other_spellings_of_a_name() {
    for text in ["Registry.TEST:443", "registry.test.:443", "REGISTRY.TEST.:443"] {
        assert_eq!(parse(text), Ok("registry.test:443".to_owned()));
    }
    for text in ["localhost:8080", "xn--strae-oqa.test:443", "1and1.test:443", "a-b.c0.test:443"] {
        assert_eq!(parse(text), Ok(text.to_owned()));
    }
}

#[test]
fn a_pattern_for_what_is_below_covers_not_the_apex_and_no_neighbour() {
    let covers = |pattern: &str, target: &str| {
        let pattern: Pattern = pattern.parse().unwrap();
        pattern.covers(&target.parse().unwrap())
    };
    for (pattern, target, expected) in [
        ("registry.test:443", "registry.test:443", true),
        ("registry.test:443", "registry.test:22", false),
        ("registry.test:443", "a.registry.test:443", false),
        ("registry.test:443", "registry.test.evil.test:443", false),
        ("registry.test:*", "registry.test:22", true),
        ("*.pkg.test:443", "a.pkg.test:443", true),
        ("*.pkg.test:443", "a.b.pkg.test:443", true),
        ("*.pkg.test:443", "pkg.test:443", false),
        ("*.pkg.test:443", "evilpkg.test:443", false),
        ("*.pkg.test:443", "a.pkg.test.evil.test:443", false),
        ("*.pkg.test:443", "a.pkg.test:80", false),
        ("*:443", "anything.test:443", true),
        ("*:443", "anything.test:80", false),
        ("*:*", "anything.test:80", true),
    ] {
        assert_eq!(covers(pattern, target), expected, "{pattern} {target}");
    }
    for text in [
        "Registry.test:443",
        "*pkg.test:443",
        "a.*:443",
        "*.*:443",
        "a.test:44*",
        "**:1",
        "10.0.0.1:443",
    ] {
        assert!(text.parse::<Pattern>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn whatever_is_accepted_is_one_normal_form(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(target) = Target::parse(&bytes) {
            let text = target.to_string();
            prop_assert_eq!(Target::parse(text.as_bytes()), Ok(target.clone()));
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
            prop_assert!(target.host().bytes().all(plain));
            prop_assert!(target.host().parse::<std::net::IpAddr>().is_err());
        }
    }

    #[test]
    fn no_address_of_version_four_is_a_name_in_any_base(bits in any::<u32>(), parts in 1usize..5, base in 0usize..3) {
        let mut rest = u64::from(bits);
        let write = |number: u64| match base {
            0 => number.to_string(),
            1 => format!("0x{number:x}"),
            _ => format!("0{number:o}"),
        };
        let mut words = Vec::new();
        for left in (1..parts).rev() {
            words.push(write(rest >> (8 * (3 - (parts - 1 - left)))));
            rest &= (1 << (8 * (3 - (parts - 1 - left)))) - 1;
        }
        words.push(write(rest));
        let text = format!("{}:443", words.join("."));
        prop_assert_eq!(parse(&text), Err(BadTarget::Address), "{}", text);
    }

    #[test]
    fn no_address_of_version_six_is_a_name(bits in any::<u128>()) {
        let address = std::net::Ipv6Addr::from_bits(bits);
        let bracketed = format!("[{address}]:443");
        let bare = format!("{address}:443");
        prop_assert!(parse(&bare).is_err());
        prop_assert_eq!(parse(&bracketed), Err(BadTarget::Address));
    }
}
