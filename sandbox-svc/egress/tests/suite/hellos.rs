//! Real hellos of a TLS client, whole and in pieces, and what is none.

use std::sync::Arc;

use egress::{BadHello, Hello};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::ServerName;

/// What a client sends first when it wants `host`.
pub(crate) fn hello(host: &str) -> Vec<u8> {
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = config
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_hello_for_the_host_passes_unchanged_in_any_pieces() {
    let whole = hello("registry.test");
    for size in [1, 2, 5, 7, 100, whole.len()] {
        let mut seen = Hello::new();
        let mut complete = false;
        for piece in whole.chunks(size) {
            assert!(!complete);
            complete = seen.feed(piece, "registry.test").unwrap();
        }
        assert!(complete);
        assert_eq!(seen.into_bytes(), whole);
    }
}

#[test]
fn what_is_sent_behind_the_hello_is_kept() {
    let mut bytes = hello("registry.test");
    bytes.extend(b"\x14\x03\x03\x00\x01\x01");
    let mut seen = Hello::new();
    assert_eq!(seen.feed(&bytes, "registry.test"), Ok(true));
    assert_eq!(seen.into_bytes(), bytes);
}

#[test]
fn a_hello_for_another_host_or_for_none_is_refused() {
    let fed = |bytes: &[u8]| Hello::new().feed(bytes, "registry.test");
    assert_eq!(fed(&hello("evil.test")), Err(BadHello::OtherName));
    assert_eq!(fed(&hello("registry.test.evil.test")), Err(BadHello::OtherName));
    assert_eq!(fed(&hello("a.registry.test")), Err(BadHello::OtherName));
    // A client that wants an address sends no name.
    assert_eq!(fed(&hello("93.184.216.34")), Err(BadHello::NoName));
    assert_eq!(fed(&hello("REGISTRY.test")), Ok(true));
}

#[test]
fn what_is_no_hello_is_refused_by_its_first_bytes() {
    for bytes in [
        &b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"\x80\x2e\x01\x03\x01",
        b"\x17\x03\x03\x00\x01\x00",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        b"\0",
    ] {
        assert_eq!(Hello::new().feed(bytes, "registry.test"), Err(BadHello::NotTls), "{bytes:?}");
    }
    let mut endless = Hello::new();
    let record = [b"\x16\x03\x01\x40\x00\x01\x00\xff\xff".to_vec(), vec![0; 16380]].concat();
    let refused =
        std::iter::repeat_n(&record, 8).find_map(|bytes| endless.feed(bytes, "a.test").err());
    assert_eq!(refused, Some(BadHello::NotTls));
}
