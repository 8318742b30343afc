//! Credentials of a workspace: none is in the copy by name or by content, none can be read or is written over, and what
//! the host's configuration carries anyway is told.

use std::fs;

use serde_json::json;

use super::world::{World, open_manifest};
use crate::config::Config;

const NAMED: [&str; 14] = [
    ".aws/credentials",
    ".aws/config",
    ".ssh/id_ecdsa",
    ".ssh/known_hosts",
    "id_ed25519",
    ".netrc",
    ".pypirc",
    ".envrc",
    "prod.env",
    ".env",
    "credentials.json",
    ".npmrc",
    "certs/server.pem",
    "deep/er/.docker/config.json",
];

/// Made here, so that no scanner takes this file for a leak.
fn token() -> String {
    format!("{}_{}", "ghp", "q7Rf2LxZ9aKp3VtMwB8nYc5HdJe1GsUo4iTz")
}

fn files(extra: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
    let named = NAMED.iter().map(|name| (*name, "//registry/:_authToken=planted\n".to_owned()));
    let harmless = [
        (".env.example", "KEY=\n"),
        ("README.md", "about ghp_ tokens\n"),
        ("id_rsa.pub", "ssh-rsa A\n"),
    ]
    .map(|(name, text)| (name, text.to_owned()));
    named.chain(harmless).chain(extra.iter().cloned()).collect()
}

async fn world(files: &[(&'static str, String)]) -> World {
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    World::new(&files).await
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_withheld_by_name_and_by_content() {
    let planted = [
        ("settings.py", format!("TOKEN = \"{}\"\n", token())),
        ("notes.txt", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n".to_owned()),
    ];
    let world = world(&files(&planted)).await;
    let run = world.run(&open_manifest()).await;
    let listed = run.plan("list_files", json!({})).await.result.unwrap();
    let mut names: Vec<_> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["path"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    let expected =
        [".env.example", "README.md", "certs", "deep", "deep/er", "deep/er/.docker", "id_rsa.pub"];
    assert_eq!(names, expected);
    for name in NAMED.into_iter().chain(["settings.py", "notes.txt"]) {
        assert!(!run.copy().join(name).exists(), "{name}");
        let refused = run.try_plan("read_file", &json!({"path": name})).await.unwrap_err();
        assert_eq!(refused, "PATH_NOT_READABLE", "{name}");
    }
    // Nothing of those names goes back, and the host's stay.
    let over = "mkdir -p .aws && echo x > .aws/credentials && echo x > .env && echo x > settings.py && echo y > new";
    assert_eq!(run.sh(over).await.end(), "exited 0");
    let inspected = run.plan("inspect_patch", json!({})).await.result.unwrap();
    assert_eq!(inspected["entries"].as_array().unwrap().len(), 1, "{inspected}");
    assert_eq!(inspected["entries"][0]["path"], "new");
    let call = run.plan("import_patch", json!({})).await;
    assert_eq!(run.execute(&call, None).await.end(), "done");
    let settings = fs::read_to_string(world.workspace().join("settings.py")).unwrap();
    assert_eq!(settings, planted[0].1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_a_command_writes_stays_in_the_copy() {
    let world = World::new(&[("a", "one\n")]).await;
    let run = world.run(&open_manifest()).await;
    let (first, second) = (token()[..10].to_owned(), token()[10..].to_owned());
    assert_eq!(run.sh(&format!("printf '%s%s' {first} {second} > a")).await.end(), "exited 0");
    let inspected = run.plan("inspect_patch", json!({})).await.result.unwrap();
    assert_eq!(inspected["entries"], json!([]));
    assert_eq!(inspected["notCarried"], json!([{"path": "a", "reason": "secret_content"}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_carries_anyway_is_there_and_told() {
    let planted = [
        ("tests/certs/ca.pem", "fixture\n".to_owned()),
        ("tests/fixture.py", format!("TOKEN = \"{}\"\n", token())),
        (".ssh/config", "Host a\n".to_owned()),
    ];
    let mut world = world(&files(&planted)).await;
    world.kill();
    let carry = ["demo=tests/**", "demo=.ssh/config"].map(|rule| rule.parse().unwrap());
    let config = Config { carry: carry.to_vec(), ..world.config() };
    world.start_with(config).await;
    let run = world.run(&open_manifest()).await;
    for (name, text) in &planted {
        assert_eq!(&fs::read_to_string(run.copy().join(name)).unwrap(), text, "{name}");
    }
    for name in [".ssh/id_ecdsa", ".ssh/known_hosts", "certs/server.pem", ".env"] {
        assert!(!run.copy().join(name).exists(), "{name}");
    }
    let entries = world.ledger.entries().into_iter();
    let told: Vec<_> = entries
        .filter(|entry| entry.event.data.kind() == "environment.carried")
        .map(|entry| entry.event.data.to_value().unwrap())
        .collect();
    assert_eq!(
        told,
        [json!({
            "runId": run.run.to_string(),
            "workspace": "demo",
            "total": 4,
            "files": [
                {"path": ".ssh", "reason": "secret_name"},
                {"path": ".ssh/config", "reason": "secret_name"},
                {"path": "tests/certs/ca.pem", "reason": "secret_name"},
                {"path": "tests/fixture.py", "reason": "secret_content"},
            ],
        })]
    );
}
