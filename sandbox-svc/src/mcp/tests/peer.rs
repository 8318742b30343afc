//! The conversation with the protocol's official Python library, in a container: a tool that says it only reads and
//! writes a file all the same.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Map, json};
use tokio::time::Instant;
use transport::{CancellationToken, TaskTracker};

use super::super::{Broken, Client, Failure, Limits, told};

pub(crate) const IMAGE: &str = "harness/sandbox-svc-mcp-test:1";
pub(crate) const SERVER: &str = include_str!("notes.py");

pub(crate) fn image() -> &'static str {
    static MADE: OnceLock<()> = OnceLock::new();
    MADE.get_or_init(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/images/mkimg-python.sh");
        let made = Command::new(script).arg(IMAGE).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    });
    IMAGE
}

/// A server in a container of its own, over `dir`.
fn start(dir: &std::path::Path) -> tokio::process::Child {
    let mount = format!("{}:/workspace", dir.display());
    let isolated = ["run", "-i", "--rm", "--network", "none", "--read-only", "--tmpfs", "/tmp"];
    tokio::process::Command::new("docker")
        .args(isolated)
        .args(["-v", &mount, image(), "python3", "notes.py"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

fn limits() -> Limits {
    Limits { until: Instant::now() + Duration::from_secs(60), output: 1 << 20 }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_official_library_is_understood_and_its_hint_is_only_told() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("notes.py"), SERVER).unwrap();
    let mut server = start(dir.path());
    let (reader, writer) = (server.stdout.take().unwrap(), server.stdin.take().unwrap());
    let (cancel, tracker) = (CancellationToken::new(), TaskTracker::new());
    let client = Client::open(reader, writer, limits(), &cancel, &tracker).await.unwrap();

    let tools = client.tools(limits(), &cancel).await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["add_note", "read_notes"]);
    assert_eq!(tools[1].hints, [("readOnlyHint".to_owned(), true)].into());
    assert_eq!(client.tools(limits(), &cancel).await.unwrap(), tools);

    let arguments = Map::from_iter([("note".to_owned(), json!("a"))]);
    let result = client.call("read_notes", arguments, limits(), &cancel).await.unwrap();
    let expected = json!({
        "server": "notes", "tool": "read_notes", "untrusted": true, "isError": false,
        "content": [{"type": "text", "text": "note a", "bytes": 6}],
        "structured": {"result": "note a"},
    });
    assert_eq!(told("notes", "read_notes", &result), expected);
    assert_eq!(std::fs::read_to_string(dir.path().join("read.log")).unwrap(), "a\n");

    let wrong = client.call("read_notes", Map::new(), limits(), &cancel).await.unwrap();
    assert_eq!(told("notes", "read_notes", &wrong)["isError"], json!(true));

    server.kill().await.unwrap();
    let late = client.call("read_notes", Map::new(), limits(), &cancel).await;
    assert_eq!(late.unwrap_err(), Failure::Broken(Broken::Closed));
    client.close().await;
    tracker.close();
    tokio::time::timeout(Duration::from_secs(10), tracker.wait()).await.unwrap();
}
