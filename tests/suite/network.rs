//! A command's way out, through the five processes: to the host that its manifest allows, to no other, and without such a
//! rule to nobody. The host is one of this machine that the administrator lists.

use anyhow::{Context as _, Result};
use e2e::{Books, Line, Person, Rig, Spec, Turn, manifest, until};
use event::id::SessionId;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use transport::Service;

/// Somebody on this machine who sends back what he gets; gone with the test.
struct Upstream {
    port: u16,
    host: String,
    serving: AbortHandle,
}

impl Upstream {
    async fn new() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        #[expect(clippy::disallowed_methods, reason = "aborted when it is dropped")]
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut from, mut to) = stream.split();
                drop(tokio::io::copy(&mut from, &mut to).await);
                drop(to.shutdown().await);
            }
        });
        let host = format!("localhost:{port}");
        Ok(Self { port, host, serving: serving.abort_handle() })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Asks the proxy for the host and for another, and then goes without it.
fn script(upstream: &Upstream) -> String {
    let Upstream { port, host, .. } = upstream;
    format!(
        r"ask() {{ printf 'CONNECT %s HTTP/1.1\r\n\r\nhello' $1 | nc -w 5 127.0.0.1 3128 2>/dev/null || echo nobody; }}
        ask {host} | tr -d '\r' | grep -e hello -e nobody
        ask elsewhere.test:443 | tr -d '\r' | grep -e x-proxy-error -e nobody
        for to in '127.0.0.1 {port}' '172.17.0.1 {port}' '1.1.1.1 443'; do nc -w 1 $to </dev/null 2>/dev/null || echo closed; done
        tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"
    )
}

/// Two tasks with the same command; only `fetch` has a rule about network.
async fn rig(upstream: &Upstream) -> Result<Rig> {
    let fetch = manifest("fetch")
        .rule("process.exec", json!("allow"))
        .rule("network", json!({ &*upstream.host: "allow" }));
    let closed = manifest("closed").rule("process.exec", json!("allow"));
    let call = Turn::Call("process.exec", json!({"argv": ["sh", "-c", script(upstream)]}));
    let mut spec = Spec::new(fetch, vec![call, Turn::Say("tried")]);
    spec.manifests.push(closed);
    let listed = vec![toml::Value::from(upstream.host.as_str())];
    Rig::start(spec.setting(Service::SandboxSvc, "egress-private", listed)).await
}

/// The command's result as the model got it.
async fn run(rig: &Rig, task: &str) -> Result<(SessionId, Value)> {
    let mut person = Person::arrive(rig).await?;
    let session = person.open(task, None).await?;
    person.prompt(session)?;
    let result = person.next_of("tool.result").await?;
    person.next_of("agent.stopped").await?;
    Ok((session, result.data["output"].clone()))
}

/// What sandbox-svc has written about `session`, once the end of its call is among it.
async fn written(rig: &Rig, session: SessionId) -> Result<Vec<Line>> {
    let books = Books::open(rig)?;
    Ok(until("the end of the call in the ledger", || async {
        let lines = books.stream("sandbox-svc", session).await.ok()?;
        lines.iter().any(|line| line.kind == "call.finished").then_some(lines)
    })
    .await)
}

fn decisions(lines: &[Line]) -> Vec<Value> {
    let decisions = lines.iter().filter(|line| line.kind == "egress.decision");
    let shown = |data: &Value| {
        json!([
            data["decision"],
            data["host"],
            data["port"],
            data["reason"],
            data["bytesUp"],
            data["bytesDown"]
        ])
    };
    decisions.map(|line| shown(&line.data)).collect()
}

fn stdout(result: &Value) -> Result<Vec<&str>> {
    let text = result["stdout"].as_str().with_context(|| format!("no output in {result}"))?;
    Ok(text.lines().collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reaches_the_host_of_its_manifest_through_the_broker_and_no_other() -> Result<()>
{
    let upstream = Upstream::new().await?;
    let rig = rig(&upstream).await?;
    let (session, result) = run(&rig, "fetch").await?;
    assert_eq!(
        stdout(&result)?,
        ["hello", "x-proxy-error: not_allowed", "closed", "closed", "closed", "lo"],
        "{result}"
    );
    let denied = json!({"host": "elsewhere.test", "port": 443, "reason": "not_allowed"});
    assert_eq!(result["network"], json!({"allowed": 1, "denied": 1, "denials": [denied]}));
    assert_eq!(
        decisions(&written(&rig, session).await?),
        [
            json!(["allow", "localhost", upstream.port, "done", 5, 5]),
            json!(["deny", "elsewhere.test", 443, "not_allowed", null, null]),
        ]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_rule_about_network_a_command_has_no_broker_and_no_way_out() -> Result<()> {
    let upstream = Upstream::new().await?;
    let rig = rig(&upstream).await?;
    let (session, result) = run(&rig, "closed").await?;
    assert_eq!(
        stdout(&result)?,
        ["nobody", "nobody", "closed", "closed", "closed", "lo"],
        "{result}"
    );
    assert_eq!(result["network"], Value::Null);
    assert_eq!(decisions(&written(&rig, session).await?), Vec::<Value>::new());
    Ok(())
}

/// Addresses of this machine, as it tells them itself.
fn addresses() -> Result<Vec<String>> {
    let output = std::process::Command::new("hostname").arg("-I").output()?;
    let text = String::from_utf8(output.stdout)?;
    let own = text.split_whitespace().map(str::to_owned);
    Ok(own
        .chain(
            ["127.0.0.1", "127.1", "2130706433", "0.0.0.0", "::1", "::ffff:127.0.0.1"]
                .map(str::to_owned),
        )
        .collect())
}

/// Every name by which a program might find this machine, or one of the five.
fn names() -> Result<Vec<String>> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned();
    let others = ["localhost", "localhost.localdomain", "host.docker.internal"];
    let services = Service::ALL.iter().map(|service| service.as_str().to_owned());
    Ok(std::iter::once(host).chain(others.map(str::to_owned)).chain(services).collect())
}

/// What the five listen on.
fn ports(rig: &Rig) -> Result<Vec<u16>> {
    let digits =
        |text: &str| -> Option<u16> { text.trim_end_matches('/').rsplit(':').next()?.parse().ok() };
    let services = [Service::AgentSvc, Service::SandboxSvc, Service::ModelSvc, Service::AuditSvc];
    let mut ports = vec![digits(&rig.ready.gateway).context("the gateway's port")?];
    for service in services {
        ports.push(digits(&rig.endpoint(service)?.to_string()).context("a port")?);
    }
    Ok(ports)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_name_and_no_address_of_the_host_leads_to_a_service() -> Result<()> {
    let (names, addresses) = (names()?, addresses()?);
    // The task allows every one of these names, on any port: what keeps them closed is not the list.
    let listed: serde_json::Map<String, Value> =
        names.iter().map(|name| (format!("{name}:*"), json!("allow"))).collect();
    let rules =
        manifest("curious").rule("process.exec", json!("allow")).rule("network", json!(listed));
    let rig = Rig::start(Spec::new(rules, vec![Turn::Say("nothing")])).await?;
    let ports = ports(&rig)?;
    // They do listen there.
    for port in &ports {
        tokio::net::TcpStream::connect(("127.0.0.1", *port)).await?;
    }
    let impostor = e2e::Impostor::enter(&rig, "curious")?;
    impostor.fence().await?;
    impostor.open().await?;
    let words = |items: &[String]| items.join(" ");
    let every = ports.iter().map(u16::to_string).collect::<Vec<_>>();
    let script = format!(
        r"ask() {{ printf 'CONNECT %s HTTP/1.1\r\n\r\n' $1 | nc -w 5 127.0.0.1 3128 | tr -d '\r' | grep x-proxy-error || echo open $1; }}
        for p in {ports}; do
          for n in {names}; do ask $n:$p; done
          for a in {addresses}; do
            case $a in *:*) ask [$a]:$p;; *) ask $a:$p;; esac
            nc -w 1 $a $p < /dev/null > /dev/null 2>&1 && echo reached $a $p
          done
        done | sort | uniq -c | sed 's/^ *//'",
        ports = words(&every),
        names = words(&names),
        addresses = words(&addresses),
    );
    let arguments = json!({"argv": ["sh", "-c", script]});
    let call = event::id::CallId::new();
    let (_, plan) = impostor.planned(call, "process.exec", &arguments).await?;
    let plan = receipt::plan_digest(&plan);
    let order =
        e2e::Order { call, tool: "process.exec", arguments: &arguments, plan, receipts: &[] };
    let finished = impostor.carry_out(&order, |_| ()).await?;
    let result: Value = serde_json::from_slice(&finished.result_json)?;
    let mut counts = std::collections::BTreeMap::new();
    for line in stdout(&result)? {
        let (count, what) = line.split_once(' ').context("a count")?;
        counts.insert(what, count.parse::<usize>()?);
    }
    let count =
        |reason: &str| counts.get(&*format!("x-proxy-error: {reason}")).copied().unwrap_or(0);
    let (literal, inside, nowhere) =
        (count("address_literal"), count("address_not_public"), count("unresolvable"));
    assert_eq!(literal, ports.len() * addresses.len(), "{result}");
    assert_eq!(inside + nowhere, ports.len() * names.len(), "{result}");
    assert!(inside >= 2 * ports.len(), "its own name and localhost lead inside: {result}");
    assert_eq!(counts.values().sum::<usize>(), literal + inside + nowhere, "{result}");
    let recorded = decisions(&written(&rig, impostor.session).await?);
    assert_eq!(recorded.len(), literal + inside + nowhere);
    assert!(recorded.iter().all(|decision| decision[0] == "deny"), "{recorded:?}");
    impostor.close().await?;
    Ok(())
}
