//! The built program against a gateway that is played here: what it answers, what it never answers, and what it does
//! when the gateway contradicts itself.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::{collections::BTreeSet, fs, path::Path, process::Stdio};

use event::{
    AgentStarted, AgentStatus, AgentStopped, Data, Decision, Event, FinishReason, ModelResponse,
    PermissionRequested, PermissionResolved, Scope, SessionCreated, Source, Usage,
    id::{CallId, EventId, PermissionId, RunId, SessionId},
};
use futures::{SinkExt as _, StreamExt as _};
use receipt::{Effect, EffectClass, Executor, Network, Plan, Version};
use serde_json::{Value, json, value::RawValue};
use time::OffsetDateTime;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    process::Command,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

const RUN: &str = "0198f000-0000-7000-8000-000000000002";

fn session() -> SessionId {
    SessionId::parse("0198f000-0000-7000-8000-000000000001").unwrap()
}

fn permission() -> PermissionId {
    PermissionId::parse("0198f000-0000-7000-8000-000000000009").unwrap()
}

fn plan() -> Plan {
    Plan {
        v: Version::V1,
        session: session(),
        run: RunId::parse(RUN).unwrap(),
        call: CallId::nil(),
        tool: "process.exec".to_owned(),
        action: "process.exec".to_owned(),
        subject: None,
        effect: Effect::Allow,
        effect_class: EffectClass::Staged,
        executor: Executor::SandboxSvc,
        scopes: vec![Scope::Once],
        manifest: event::Digest::of(b"manifest"),
        parts: Vec::new(),
        policies: Vec::new(),
        approval: Vec::new(),
        network: Network::None,
        program: None,
        argv: Some(vec!["rm".to_owned(), "\u{202e}gpj.txt".to_owned()]),
        cwd: None,
        env: Some(BTreeSet::new()),
        image: None,
        limits: None,
        snapshot: None,
        workspace: None,
        patch: None,
    }
}

fn digest() -> event::Digest {
    receipt::plan_digest(&plan().to_bytes().unwrap())
}

fn event(data: impl Into<Data>) -> Box<RawValue> {
    let event = Event {
        id: EventId::new(),
        at: OffsetDateTime::UNIX_EPOCH,
        actor: None,
        data: data.into(),
    };
    RawValue::from_string(String::from_utf8(event::seal(&event).unwrap().bytes).unwrap()).unwrap()
}

fn asked() -> Box<RawValue> {
    event(PermissionRequested {
        permission_id: permission(),
        session_id: session(),
        call_id: Some(CallId::nil()),
        action: "process.exec".to_owned(),
        subject: None,
        scope: Scope::Once,
        reason: None,
        plan: serde_json::from_slice(&plan().to_bytes().unwrap()).unwrap(),
        plan_digest: digest(),
        expires_at: OffsetDateTime::UNIX_EPOCH,
    })
}

/// What happens until the ask, and with it.
fn beginning() -> Vec<Box<RawValue>> {
    let started = AgentStarted {
        agent_id: RUN.to_owned(),
        session_id: session(),
        task_id: None,
        model: "m".to_owned(),
    };
    vec![event(SessionCreated { session_id: session(), workspace: None }), event(started), asked()]
}

/// What happens once it is answered.
fn rest(decision: Decision, source: Source) -> Vec<Box<RawValue>> {
    let resolved = PermissionResolved {
        permission_id: permission(),
        session_id: session(),
        call_id: None,
        action: "process.exec".to_owned(),
        subject: None,
        scope: Scope::Once,
        reason: None,
        decision,
        source,
        by: None,
        note: None,
    };
    let said = ModelResponse {
        request_id: "r".to_owned(),
        model: "m".to_owned(),
        finish_reason: FinishReason::Stop,
        usage: Usage { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
        text: Some("all\u{1b}[2Jdone".to_owned()),
    };
    let status = AgentStatus::Completed;
    let stopped =
        AgentStopped { agent_id: RUN.to_owned(), status, steps: 2, tool_calls: 1, note: None };
    vec![event(resolved), event(said), event(stopped)]
}

/// How the played gateway deviates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Play {
    Honest,
    SkipsANumber,
    TurnsTheAnswer,
    SaysItFailed,
    SendsNonsense,
    HasNothingOpen,
}

struct Gateway {
    socket: WebSocketStream<TcpStream>,
    seq: u64,
    /// Every request, in order.
    heard: Vec<Value>,
}

impl Gateway {
    /// Serves one connection until the client leaves.
    async fn play(listener: TcpListener, play: Play) -> Vec<Value> {
        let (stream, _) = listener.accept().await.unwrap();
        let socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        let mut gateway = Self { socket, seq: 0, heard: Vec::new() };
        let mut prompt = None;
        let mut watched = false;
        while let Some(Ok(message)) = gateway.socket.next().await {
            let Message::Text(text) = message else { continue };
            let request: Value = serde_json::from_str(&text).unwrap();
            let (id, method) =
                (request["id"].clone(), request["method"].as_str().unwrap().to_owned());
            gateway.heard.push(request.clone());
            match method.as_str() {
                "initialize" => {
                    watched = request["params"]["capabilities"]["permissioning"] == false;
                    let capabilities =
                        json!({"streaming": true, "permissioning": true, "sessions": true});
                    let answer = json!({"protocolVersion": "harness/acp/1", "agentName": "harness",
                        "capabilities": capabilities, "models": ["m"]});
                    gateway.answer(&id, answer).await;
                }
                "session/new" => gateway.answer(&id, json!({"sessionId": session()})).await,
                "session/prompt" if play == Play::SendsNonsense => {
                    gateway.text("{\"jsonrpc\":".to_owned()).await;
                }
                "session/prompt" => {
                    prompt = Some(id);
                    for event in beginning() {
                        gateway.seq += u64::from(play == Play::SkipsANumber && gateway.seq == 1);
                        gateway.event(&event).await;
                    }
                    if watched && let Some(id) = prompt.take() {
                        gateway.finish(Decision::Deny, Source::MissingResolver).await;
                        gateway.end(&id, "completed").await;
                    }
                }
                "session/attach" => {
                    let open = match play {
                        Play::HasNothingOpen => json!([]),
                        _ => json!([{"seq": 2, "event": null}]),
                    };
                    let events = beginning();
                    // The ask is spliced in as text: its bytes are what counts.
                    let open = open.to_string().replace("null", events[2].get());
                    let answer = format!(
                        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"throughSeq\":2,\"open\":{open}}}}}"
                    );
                    gateway.text(answer).await;
                    for event in events {
                        gateway.event(&event).await;
                    }
                }
                "permission/respond" => {
                    gateway.answer(&id, json!({"accepted": true})).await;
                    let decision = match (request["params"]["decision"].as_str().unwrap(), play) {
                        ("allow", Play::TurnsTheAnswer) => Decision::Deny,
                        ("allow", _) => Decision::Allow,
                        (_, Play::TurnsTheAnswer) => Decision::Allow,
                        (_, _) => Decision::Deny,
                    };
                    gateway.finish(decision, Source::Operator).await;
                    if let Some(id) = prompt.take() {
                        let status =
                            if play == Play::SaysItFailed { "failed" } else { "completed" };
                        gateway.end(&id, status).await;
                    }
                }
                other => panic!("{other} was not expected"),
            }
        }
        gateway.heard
    }

    async fn finish(&mut self, decision: Decision, source: Source) {
        for event in rest(decision, source) {
            self.event(&event).await;
        }
    }

    async fn end(&mut self, prompt: &Value, status: &str) {
        let usage = json!({"promptTokens": 3, "completionTokens": 2, "totalTokens": 5});
        let answer =
            json!({"status": status, "events": [], "finalText": "all done", "usage": usage});
        self.answer(prompt, answer).await;
    }

    async fn answer(&mut self, id: &Value, result: Value) {
        self.text(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()).await;
    }

    async fn event(&mut self, event: &RawValue) {
        let (session, seq) = (session(), self.seq);
        self.seq += 1;
        let params =
            format!("{{\"sessionId\":\"{session}\",\"seq\":{seq},\"event\":{}}}", event.get());
        self.text(format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{params}}}"
        ))
        .await;
    }

    /// A client that has seen enough may be gone.
    async fn text(&mut self, text: String) {
        drop(self.socket.send(Message::text(text)).await);
    }
}

/// What the program did, and what it said to the gateway.
struct Done {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    heard: Vec<Value>,
}

impl Done {
    fn answer(&self) -> Option<&Value> {
        self.heard
            .iter()
            .find(|request| request["method"] == "permission/respond")
            .map(|request| &request["params"])
    }

    fn request(&self, method: &str) -> &Value {
        self.heard.iter().find(|request| request["method"] == method).unwrap()
    }

    fn document(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }
}

async fn harness(play: Play, words: &[&str], stdin: &str) -> Done {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let (command, rest) = words.split_first().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_harness"));
    program
        .args([command, "--gateway", &url, "--token-file", token(dir.path()).as_str()])
        .args(rest);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = program.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(stdin.as_bytes()).await.unwrap();
    // Kept open: an end of input is not what decides.
    let (output, heard) = tokio::join!(child.wait_with_output(), Gateway::play(listener, play));
    drop(input);
    let output = output.unwrap();
    Done {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        heard,
    }
}

fn token(dir: &Path) -> String {
    let path = dir.join("token");
    fs::write(&path, "opaque").unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_run_that_asks_pauses_and_says_how_to_go_on() {
    let done = harness(Play::Honest, &["run", "--workspace", "w", "--json", "hello"], "").await;
    assert_eq!((done.code, done.answer()), (Some(0), None), "{}", done.stderr);
    let opened = done.heard.iter().find(|request| request["method"] == "session/new").unwrap();
    assert_eq!(opened["params"]["onDisconnect"], "hold");
    let document = done.document();
    assert_eq!(
        (&document["kind"], &document["status"]),
        (&json!("run-result"), &json!("waiting_approval"))
    );
    assert_eq!(document["runId"], RUN);
    assert_eq!(document["pendingApprovals"][0]["planDigest"], digest().to_string());
    let approve: Vec<&str> = document["resume"][0]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    assert_eq!(
        (approve[..2].to_vec(), &approve[6..8]),
        (vec!["harness", "resume"], [RUN, "--approve"].as_slice())
    );
    assert!(
        done.stderr.contains("\\u202egpj.txt") && !done.stderr.contains('\u{202e}'),
        "{}",
        done.stderr
    );
}

#[tokio::test]
async fn yes_answers_under_the_digest_that_was_shown() {
    let done =
        harness(Play::Honest, &["run", "--workspace", "w", "--yes", "--json", "hello"], "").await;
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let answer = done.answer().unwrap();
    assert_eq!(
        (&answer["decision"], &answer["planDigest"]),
        (&json!("allow"), &json!(digest().to_string()))
    );
    let document = done.document();
    assert_eq!(
        (&document["status"], &document["output"]),
        (&json!("completed"), &json!("all done"))
    );
    assert_eq!((&document["steps"], &document["usage"]["totalTokens"]), (&json!(2), &json!(5)));
}

#[tokio::test]
async fn no_hold_comes_as_nobody_who_could_answer_and_answers_nothing() {
    let done = harness(Play::Honest, &["run", "--workspace", "w", "--no-hold", "hello"], "").await;
    assert_eq!((done.code, done.answer()), (Some(0), None), "{}", done.stderr);
    assert_eq!(
        done.heard[0]["params"]["capabilities"],
        json!({"streaming": true, "permissioning": false, "sessions": true})
    );
    assert_eq!(done.request("session/new")["params"]["onDisconnect"], "deny");
    assert!(
        done.stderr.contains(&format!("permission {}: deny (missing_resolver)", permission())),
        "{}",
        done.stderr
    );
    assert_eq!(done.stdout, "all done\n");
}

#[tokio::test]
async fn without_a_terminal_connect_denies_whatever_is_in_the_input() {
    let done =
        harness(Play::Honest, &["connect", "--workspace", "w", "hello"], "y\nyes\ny\n").await;
    assert_eq!(
        (done.code, &done.answer().unwrap()["decision"]),
        (Some(0), &json!("deny")),
        "{}",
        done.stderr
    );
    assert!(!done.stderr.contains('\u{1b}'), "{}", done.stderr);
}

#[tokio::test]
async fn resume_answers_what_waits_and_follows_to_the_end() {
    let done = harness(Play::Honest, &["resume", RUN, "--approve", "--json"], "").await;
    assert_eq!(
        (done.code, &done.answer().unwrap()["decision"]),
        (Some(0), &json!("allow")),
        "{}",
        done.stderr
    );
    assert_eq!(done.document()["status"], "completed");
    let attached = done.heard.iter().find(|request| request["method"] == "session/attach").unwrap();
    assert_eq!(attached["params"], json!({"runId": RUN, "afterSeq": -1}));
}

#[tokio::test]
async fn resume_answers_nothing_that_it_was_not_meant_for() {
    let other = event::Digest::of(b"other").to_string();
    let done = harness(Play::Honest, &["resume", RUN, "--approve", "--plan", &other], "").await;
    assert_eq!((done.code, done.answer()), (Some(1), None), "{}", done.stderr);
    let idle = harness(Play::HasNothingOpen, &["resume", RUN, "--approve"], "").await;
    assert_eq!((idle.code, idle.answer()), (Some(1), None));
    assert!(idle.stderr.contains("does not wait for an approval"), "{}", idle.stderr);
}

#[tokio::test]
async fn a_gateway_that_contradicts_itself_is_left() {
    for (play, answers) in [
        (Play::SkipsANumber, false),
        (Play::TurnsTheAnswer, true),
        (Play::SaysItFailed, true),
        (Play::SendsNonsense, false),
    ] {
        let done = harness(play, &["run", "--workspace", "w", "--yes", "hello"], "").await;
        assert_eq!((done.code, done.answer().is_some()), (Some(1), answers), "{}", done.stderr);
        assert!(done.stderr.lines().last().unwrap().starts_with("harness: "), "{}", done.stderr);
        assert_eq!(done.stdout, "");
    }
}
