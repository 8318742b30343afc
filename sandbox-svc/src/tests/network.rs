//! Commands with a network: what they reach through the broker, what they do not, and what is on record of it.

use std::fs;
use std::path::PathBuf;

use event::{Data, EgressDecision, EgressVerdict};
use receipt::{Effect, EffectClass, Network, Scope};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use transport::TaskTracker;

use super::run::{Run, Told};
use super::world::{World, manifest, open_manifest};

/// Somebody on this machine who sends back what he gets.
struct Upstream {
    host: String,
    port: u16,
    tasks: TaskTracker,
}

impl Upstream {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tasks = TaskTracker::new();
        let own = tasks.clone();
        tasks.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                own.spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    drop(tokio::io::copy(&mut from, &mut to).await);
                    drop(to.shutdown().await);
                });
            }
        });
        Self { host: format!("localhost:{port}"), port, tasks }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.tasks.close();
    }
}

/// Everything is allowed, and about network these rules.
fn with_network(rules: &str) -> String {
    open_manifest().replace("network: deny", &format!("network: {rules}"))
}

/// What a program that knows the variable would send.
fn connect(authority: &str, more: &str) -> String {
    format!("printf 'CONNECT {authority} HTTP/1.1\\r\\n\\r\\n{more}' | nc -w 5 127.0.0.1 3128")
}

async fn decisions(world: &World, run: &Run<'_>) -> Vec<EgressDecision> {
    let stream = run.stream_id();
    let finished = || world.ledger.kinds(&stream).contains(&"call.finished");
    world.ledger.wait(|_| finished()).await;
    let entries = world.ledger.entries().into_iter().filter(|entry| entry.session == stream);
    let of = |data| match data {
        Data::EgressDecision(decision) => Some(decision),
        _ => None,
    };
    entries.filter_map(|entry| of(entry.event.data)).collect()
}

fn output(told: &Told) -> String {
    told.result()["stdout"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allowed_host_is_reached_and_every_decision_is_on_record() {
    let upstream = Upstream::new().await;
    let world = World::networked(&[&upstream.host]).await;
    let run = world.run(&with_network(&format!("{{'{}': allow}}", upstream.host))).await;
    let script = format!(
        "{}; {}; echo; env | grep -ic '^https*_proxy=http://127.0.0.1:3128$'",
        connect(&upstream.host, "hello"),
        connect("evil.test:443", "")
    );
    let call = run.plan_exec(&["sh", "-c", &script]).await;
    let plan = &call.plan;
    assert_eq!((plan.effect, plan.effect_class), (Effect::Allow, EffectClass::Irreversible));
    let rule = format!("permissions.network[{}]", upstream.host);
    assert_eq!(
        serde_json::to_value(&plan.network).unwrap(),
        json!({
            "mode": "broker",
            "layers": [{
                "layer": "manifest",
                "rules": [{ "hosts": upstream.host, "effect": "allow", "rule": rule }],
                "otherwise": { "effect": "deny", "port": 443, "rule": "permissions.network" },
            }],
            "private": [upstream.host],
        })
    );
    let parts: Vec<_> = plan.parts.iter().map(|part| part.action.as_str()).collect();
    assert_eq!(parts, ["process.exec", "network"]);
    assert!(plan.env.as_ref().unwrap().contains("https_proxy"));

    let told = run.execute(&call, None).await;
    assert_eq!(told.end(), "exited 0", "{told:?}");
    let text = output(&told);
    assert!(text.contains("200 Connection established") && text.contains("hello"), "{text}");
    assert!(text.contains("x-proxy-error: not_allowed"), "{text}");
    assert!(text.contains("denied by policy, do not retry") && text.ends_with("\n4\n"), "{text}");
    assert_eq!(
        told.result()["network"],
        json!({
            "allowed": 1,
            "denied": 1,
            "denials": [{ "host": "evil.test", "port": 443, "reason": "not_allowed" }],
        })
    );
    let started: Value = serde_json::from_slice(told.started.as_ref().unwrap()).unwrap();
    assert_eq!(started["network"], "enabled");
    let expected = |host: &str, port, decision, rule: &str, reason: &str, bytes| EgressDecision {
        run_id: run.run,
        call_id: call.id,
        attempt: 1,
        host: host.to_owned(),
        port: Some(port),
        decision,
        rule: Some(rule.to_owned()),
        reason: reason.to_owned(),
        bytes_up: bytes,
        bytes_down: bytes,
    };
    assert_eq!(
        decisions(&world, &run).await,
        [
            expected("localhost", upstream.port, EgressVerdict::Allow, &rule, "done", Some(5)),
            expected(
                "evil.test",
                443,
                EgressVerdict::Deny,
                "permissions.network",
                "not_allowed",
                None
            ),
        ]
    );
    assert_eq!(world.brokers(), Vec::<i32>::new());
    assert_eq!(world.containers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_the_broker_leads_out() {
    let upstream = Upstream::new().await;
    let world = World::networked(&[]).await;
    let run = world.run(&with_network("allow")).await;
    let direct = ["1.1.1.1 80", "169.254.169.254 80", "172.17.0.1 80", "127.0.0.1 5000"];
    let direct = direct.map(|to| format!("nc -w 1 {to} </dev/null 2>/dev/null; echo direct $?"));
    let asked = [
        upstream.host.as_str(),
        &format!("127.0.0.1:{}", upstream.port),
        "169.254.169.254:80",
        "172.17.0.1:443",
        "2130706433:443",
        "[::1]:443",
        "localhost:443",
        "gateway.test:8080",
    ];
    let asked = asked.map(|to| format!("{} | grep x-proxy-error", connect(to, "")));
    let script = format!(
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; ls /var/run/docker.sock 2>/dev/null; \
         find / -type s -not -path '/proc/*' 2>/dev/null; ls /.egress 2>/dev/null; [ -S /.egress/s ] && echo socket; \
         ls /proc/self/fd | wc -l; touch /.egress/x 2>/dev/null; echo $?; \
         rm -f /.egress/s 2>/dev/null; nslookup registry.test >/dev/null 2>&1; echo names $?; {}; {}; \
         wget -q -O - http://{} 2>&1 | tail -n 1",
        direct.join("; "),
        asked.join("; "),
        upstream.host
    );
    let told = run.sh(&script).await;
    let text = output(&told).replace('\r', "");
    let lines: Vec<_> = text.lines().collect();
    let denied = |reason: &str| format!("x-proxy-error: {reason}");
    let mut expected = ["lo", "socket", "4", "1", "names 1"].map(str::to_owned).to_vec();
    expected.extend(["direct 1"; 4].map(str::to_owned));
    expected.push(denied("not_allowed"));
    expected.extend(std::iter::repeat_n(denied("address_literal"), 5));
    expected.extend([denied("address_not_public"), denied("not_allowed")]);
    assert_eq!(lines[..expected.len()], expected, "{told:?}");
    assert!(lines.last().unwrap().contains("405"), "{text}");
    assert_eq!(told.result()["network"]["allowed"], 0);
    let all = decisions(&world, &run).await;
    assert!(
        all.iter().all(|it| it.decision == EgressVerdict::Deny && it.bytes_up.is_none()),
        "{all:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_broker_is_killed_no_way_is_open_and_the_result_says_so() {
    let upstream = Upstream::new().await;
    let world = World::networked(&[&upstream.host]).await;
    let run = world.run(&with_network(&format!("{{'{}': allow}}", upstream.host))).await;
    let script = format!(
        "{}; echo ready > ready; until [ -e go ]; do sleep 0.05; done; {}; echo; echo over",
        connect(&upstream.host, "first"),
        connect(&upstream.host, "second")
    );
    let call = run.plan_exec(&["sh", "-c", &script]).await;
    let copy = run.copy();
    let order = run.order(&call, None);
    let executed = run.send(order);
    let killed = async {
        while !copy.join("ready").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let [broker] = world.brokers()[..] else { panic!("{:?}", world.brokers()) };
        let broker = rustix::process::Pid::from_raw(broker).unwrap();
        rustix::process::kill_process(broker, rustix::process::Signal::KILL).unwrap();
        while !world.brokers().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        fs::write(copy.join("go"), "").unwrap();
    };
    let (told, ()) = tokio::join!(executed, killed);
    let told = told.unwrap();
    let text = output(&told);
    assert!(
        text.contains("first") && !text.contains("second") && text.ends_with("over\n"),
        "{text}"
    );
    assert_eq!(
        told.result()["network"],
        json!({ "allowed": 1, "denied": 0, "denials": [], "brokerLost": true })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_that_gets_ready_nothing_runs() {
    let mut world = World::networked(&[]).await;
    world.restart_with_broker(PathBuf::from("/bin/false"), &[]).await;
    let run = world.run(&with_network("allow")).await;
    let told = run.sh("touch ran").await;
    assert!(told.end().starts_with("start_failed the egress broker"), "{}", told.end());
    assert!(!run.copy().join("ran").exists());
    assert_eq!(world.containers(), Vec::<String>::new());
    // And without a word about network none is needed.
    let run = world.run(&open_manifest()).await;
    assert_eq!(run.sh("ls -d /.egress; env | grep -ci proxy").await.end(), "exited 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_is_asked_for_needs_a_yes_to_the_plan_that_shows_it() {
    let upstream = Upstream::new().await;
    let world = World::networked(&[&upstream.host]).await;
    let run = world.run(&with_network(&format!("{{'{}': ask}}", upstream.host))).await;
    let script = connect(&upstream.host, "hello");
    let call = run.plan_exec(&["sh", "-c", &script]).await;
    assert_eq!(call.plan.effect, Effect::Ask);
    let Network::Broker { layers, .. } = &call.plan.network else { panic!("{:?}", call.plan) };
    assert_eq!(layers[0].rules[0].effect, Effect::Ask);
    assert_eq!(run.execute(&call, None).await.end(), "RECEIPT_REQUIRED");
    let allowed = run.execute_with(&call, &[&run.receipt(&call, Scope::Once)]).await;
    assert!(output(&allowed).contains("hello"), "{allowed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_reaches_by_its_own_manifest_and_not_by_anothers() {
    let upstream = Upstream::new().await;
    let world = World::networked(&[&upstream.host]).await;
    let one = world.run(&with_network(&format!("{{'{}': allow}}", upstream.host))).await;
    let other = world.run(&with_network("{'other.test:443': allow}")).await;
    let script = connect(&upstream.host, "hello");
    let (one, other) = tokio::join!(one.sh(&script), other.sh(&script));
    assert!(output(&one).contains("hello"), "{one:?}");
    assert!(output(&other).contains("x-proxy-error: not_allowed"), "{other:?}");
    assert!(!output(&other).contains("hello"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_narrows_what_a_manifest_reaches() {
    let upstream = Upstream::new().await;
    let mut world = World::governed(&[]).await;
    world.ceiling(&format!("hard_deny: {{network: ['{}']}}", upstream.host));
    let built = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("harness-egress");
    world.restart_with_broker(built, &[&upstream.host]).await;
    let rules = "  fs.read: allow\n  process.exec: allow\n";
    let network = "network: {'localhost:*': allow}";
    let run = world.run(&manifest(rules).replace("network: deny", network)).await;
    let call = run.plan_exec(&["sh", "-c", &connect(&upstream.host, "hello")]).await;
    let Network::Broker { layers, private } = &call.plan.network else { panic!("{:?}", call.plan) };
    assert_eq!((layers.len(), private.len()), (2, 0));
    let told = run.execute(&call, None).await;
    assert!(output(&told).contains("x-proxy-error: not_allowed"), "{told:?}");
}
