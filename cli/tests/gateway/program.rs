//! The built program as a person starts it against the played gateway, and what it did.

use std::{fs, path::Path, process::Stdio};

use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, net::TcpListener, process::Command};

use crate::played::{Gateway, LIMIT, Play};

/// What the program did, and what it said to the gateway.
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) heard: Vec<Value>,
}

impl Done {
    pub(crate) fn answer(&self) -> Option<&Value> {
        self.heard
            .iter()
            .find(|request| request["method"] == "permission/respond")
            .map(|request| &request["params"])
    }

    pub(crate) fn request(&self, method: &str) -> &Value {
        self.heard.iter().find(|request| request["method"] == method).unwrap()
    }

    pub(crate) fn document(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }
}

pub(crate) async fn harness(play: Play, words: &[&str], stdin: &str) -> Done {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let mut program = Command::new(env!("CARGO_BIN_EXE_harness"));
    program.args(words).args(["--gateway", &url, "--token-file", token(dir.path()).as_str()]);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = program.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(stdin.as_bytes()).await.unwrap();
    // Kept open: an end of input is not what decides.
    let both = async { tokio::join!(child.wait_with_output(), Gateway::play(listener, play)) };
    let (output, heard) = tokio::time::timeout(LIMIT, both).await.expect("it ends in time");
    drop(input);
    let output = output.unwrap();
    Done {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        heard,
    }
}

pub(crate) fn token(dir: &Path) -> String {
    let path = dir.join("token");
    fs::write(&path, "opaque").unwrap();
    path.to_str().unwrap().to_owned()
}
