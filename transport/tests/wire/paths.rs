//! Odd `:path` values, written byte by byte over HTTP/2, as no library would.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use transport::Service;

use crate::{
    ledger::{APPEND, READ_STREAM},
    setup::{LIMIT, Setup, dial, raw_config},
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header field that is neither indexed nor compressed.
fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        bytes.push(u8::try_from(text.len()).unwrap());
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// Sends a unary call to `path` and returns the kind of the frame that answers it.
async fn call(setup: &Setup, path: &str) -> u8 {
    let issued = setup.pki.service(Service::AgentSvc, "0").unwrap();
    let config = raw_config(setup.pki.services.cert_pem(), Some(&issued), b"h2");
    let mut stream = dial(setup.services, config).await.unwrap();
    let fields = [
        field(":method", "POST"),
        field(":scheme", "https"),
        field(":path", path),
        field(":authority", "localhost"),
        field("content-type", "application/grpc"),
        field("te", "trailers"),
    ];
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    bytes.extend(frame(HEADERS, END_HEADERS, 1, &fields.concat()));
    bytes.extend(frame(DATA, END_STREAM, 1, &[0; 5]));
    stream.write_all(&bytes).await.unwrap();
    let answered = async {
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length.try_into().unwrap()];
            stream.read_exact(&mut payload).await.unwrap();
            if matches!(head[3], HEADERS | RST_STREAM | GOAWAY) {
                return head[3];
            }
        }
    };
    tokio::time::timeout(LIMIT, answered).await.expect("an answer")
}

/// The HTTP library cuts a fragment off before table and router look, so that both see the same path.
#[tokio::test]
async fn a_fragment_makes_no_difference_between_the_table_and_the_handler() {
    let setup = Setup::new().await;
    call(&setup, &format!("{READ_STREAM}#{APPEND}")).await;
    call(&setup, &format!("/harness.audit.v1.AuditService/Query#{APPEND}")).await;
    // The first is allowed to agent-svc and the second is not.
    assert_eq!(setup.ledger.calls(), 1);
}

#[tokio::test]
async fn an_odd_path_never_reaches_a_handler() {
    let setup = Setup::new().await;
    let name = &APPEND[1..];
    let odd = [
        name.to_owned(),
        format!("/{APPEND}"),
        format!("{APPEND}/"),
        format!("{APPEND}?"),
        format!("{APPEND}?x=1"),
        format!("{APPEND};x"),
        format!("/.{APPEND}"),
        format!("/x/..{APPEND}"),
        format!("https://localhost{APPEND}"),
        format!("localhost{APPEND}"),
        APPEND.to_lowercase(),
        APPEND.to_uppercase(),
        APPEND.replace("/Append", "%2fAppend"),
        APPEND.replace("/Append", "//Append"),
        APPEND.replace("/Append", "/%41ppend"),
        APPEND.replace("/Append", "/Append%00"),
        APPEND.replace("/Append", "\\Append"),
        APPEND.replace('.', "%2e"),
        "*".to_owned(),
        "/".to_owned(),
        String::new(),
        format!("{APPEND} "),
        format!("\t{APPEND}"),
    ];
    for path in odd {
        call(&setup, &path).await;
        assert_eq!(setup.ledger.calls(), 0, "{path:?} reached a handler");
    }
    assert_eq!(call(&setup, APPEND).await, HEADERS);
    assert_eq!(setup.ledger.calls(), 1, "the exact path reaches it");
}
