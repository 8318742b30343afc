//! The listener for people.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
};
use transport::{CancellationToken, Context, Service, server::PublicListener};

use crate::setup::{ANY_PORT, LIMIT, dial, pki, raw_config};

#[tokio::test]
async fn people_connect_without_a_certificate_and_only_with_http1() {
    let pki = pki();
    let context = pki.context(Service::Gateway).unwrap();
    let listener = PublicListener::bind(&context, ANY_PORT).await.unwrap();
    let addr = listener.addr();
    let shutdown = CancellationToken::new();
    let mut serving = JoinSet::new();
    serving.spawn(listener.serve(shutdown.clone(), |mut stream, _, _| async move {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        stream.write_all(&byte).await.unwrap();
        stream.shutdown().await.unwrap();
    }));
    let named = raw_config(pki.services.cert_pem(), None, b"http/1.1");
    // Without a named protocol TLS carries HTTP/1.1.
    let mut unnamed = named.clone();
    unnamed.alpn_protocols.clear();
    for config in [named, unnamed] {
        let mut stream = dial(addr, config).await.unwrap();
        stream.write_all(b"x").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "x");
    }
    dial(addr, raw_config(pki.services.cert_pem(), None, b"h2")).await.unwrap_err();

    shutdown.cancel();
    tokio::time::timeout(LIMIT, serving.join_next()).await.expect("it ends").unwrap().unwrap();
    let Context { tracker, .. } = context;
    tracker.close();
    tokio::time::timeout(LIMIT, tracker.wait()).await.expect("its connections end");
}

#[tokio::test]
async fn silence_holds_nobody_up() {
    let pki = pki();
    let context = pki.context(Service::Gateway).unwrap();
    let listener = PublicListener::bind(&context, ANY_PORT).await.unwrap();
    let addr = listener.addr();
    let shutdown = CancellationToken::new();
    let mut serving = JoinSet::new();
    serving.spawn(listener.serve(shutdown.clone(), |mut stream, _, _| async move {
        stream.write_all(b"x").await.unwrap();
        stream.shutdown().await.unwrap();
    }));
    // More than may wait: the oldest are given up, and whoever speaks comes in.
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(tokio::net::TcpStream::connect(addr).await.unwrap());
    }
    let config = raw_config(pki.services.cert_pem(), None, b"http/1.1");
    let mut stream = dial(addr, config).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "x");
    let oldest = tokio::time::timeout(LIMIT, silent[0].read_u8()).await.expect("it is cut");
    oldest.unwrap_err();
    let newest = silent.last().unwrap().try_read(&mut [0]).unwrap_err();
    assert_eq!(newest.kind(), std::io::ErrorKind::WouldBlock, "it may still speak");

    shutdown.cancel();
    tokio::time::timeout(LIMIT, serving.join_next()).await.expect("it ends").unwrap().unwrap();
}
