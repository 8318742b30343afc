//! The head of a request: one CONNECT, complete, within its limit.

use egress::{BadHead, Head};
use proptest::prelude::*;

fn parse(text: &str) -> Result<Option<(String, usize)>, BadHead> {
    let head = Head::parse(text.as_bytes())?;
    Ok(head.map(|head| (String::from_utf8(head.authority).unwrap(), head.length)))
}

#[test]
fn connect_is_the_only_method() {
    for method in ["GET", "POST", "PUT", "OPTIONS", "TRACE", "connect", "Connect", "PRI"] {
        let text =
            format!("{method} http://registry.test/ HTTP/1.1\r\nhost: registry.test\r\n\r\n");
        assert_eq!(parse(&text), Err(BadHead::Method), "{method}");
    }
}

#[test]
fn a_head_that_two_readers_could_read_differently_is_refused() {
    for text in [
        "CONNECT a.test:443\r\n\r\n",
        "CONNECT a.test:443 HTTP/2.0\r\n\r\n",
        "CONNECT  a.test:443 HTTP/1.1\r\n\r\n",
        "CONNECT a.test:443 b.test:443 HTTP/1.1\r\n\r\n",
        "CONNECT\ta.test:443 HTTP/1.1\r\n\r\n",
        " CONNECT a.test:443 HTTP/1.1\r\n\r\n",
        "\r\nCONNECT a.test:443 HTTP/1.1\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\nhost: b.test\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\rhost: b.test\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\nhost: a\nx: b\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\nhost\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\n: x\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\n folded: x\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\nhost : x\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\nhost: a\0\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
        "CONNECT  HTTP/1.1\r\n\r\n",
        "\x16\x03\x01\r\n\r\n",
    ] {
        assert_eq!(parse(text), Err(BadHead::Form), "{text:?}");
    }
    let many = format!("CONNECT a.test:443 HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
    assert_eq!(parse(&many), Err(BadHead::Form));
}

#[test]
fn a_head_ends_within_its_limit() {
    let long = format!("CONNECT a.test:443 HTTP/1.1\r\nx: {}", "y".repeat(9000));
    assert_eq!(parse(&long), Err(BadHead::Long));
    let late = format!("{long}\r\n\r\n");
    assert_eq!(parse(&late), Err(BadHead::Long));
    assert_eq!(parse("CONNECT a.test:443 HTTP/1.1\r\nx: y\r\n"), Ok(None));
}

#[test]
fn what_follows_the_head_belongs_to_the_tunnel() {
    let head = "CONNECT Registry.test:443 HTTP/1.1\r\nHost: elsewhere.test\r\nProxy-Authorization: Basic eA==\r\n\r\n";
    let parsed = parse(&format!("{head}CONNECT b.test:443 HTTP/1.1\r\n\r\n"));
    assert_eq!(parsed, Ok(Some(("Registry.test:443".to_owned(), head.len()))));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_more_bytes_never_change_an_answer(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        cut in 0usize..300,
    ) {
        let mut text = b"CONNECT a.test:443 HTTP/1.1\r\n".to_vec();
        text.extend(&bytes);
        if let Ok(Some(head)) = Head::parse(&text) {
            let mut more = text.clone();
            more.extend(&bytes);
            prop_assert_eq!(Head::parse(&more), Ok(Some(head)));
        }
        drop(Head::parse(&bytes[..cut.min(bytes.len())]));
    }
}
