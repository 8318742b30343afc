//! One rule book: a table of calls is decided the same whether a person is there, nobody is, the services were killed in
//! between, a child makes the calls, or sandbox-svc is asked directly. What follows from an ask may differ; the decision may not.

use acp::Decision;
use anyhow::{Context as _, Result, ensure};
use e2e::{Asked, Books, Impostor, Line, Person, Rig, Spec, Turn, manifest, until, within};
use event::id::{CallId, SessionId};
use serde_json::{Value, json};

const EXEC: &str = "process.exec";
const TASK: &str = "make the calls of the table";

/// What the model asks for, in this order.
fn table() -> Vec<(&'static str, Value)> {
    let commands: [&[&str]; 36] = [
        &["true"],
        &["true", "--now"],
        &["echo", "plain"],
        &["echo", "it's"],
        &["echo", "a/b"],
        &["echo", "*"],
        &["echo", "a\nb"],
        &["echo", "\u{202e}txt"],
        &["echo", "x\u{200b}y"],
        &["echo", ""],
        &["echo", "--deep/er"],
        &["ls"],
        &["ls", "-A"],
        &["ls", "src"],
        &["cat", "app.txt"],
        &["cat", "src/lib.txt"],
        &["cat", "../x"],
        &["rm", "app.txt"],
        &["rm", "-rf", "src"],
        &["rm", "-r", "-f", "src"],
        &["sh", "-c", "true"],
        &["sh", "-c", "true && rm -rf src"],
        &["sh", "-c", "{ rm -r -f src; }"],
        &["sh", "-c", "echo `rm -rf src`"],
        &["sh", "-c", "echo $(rm -rf src)"],
        &["sh", "-c", "true | xargs rm -rf"],
        &["sh", "-c", "case a in a) rm -rf src;; esac"],
        &["env", "A=1", "true"],
        &["env", "rm", "-rf", "src"],
        &["timeout", "5", "true"],
        &["timeout", "5", "rm", "-rf", "src"],
        &["xargs", "rm", "-rf"],
        &["find", ".", "-name", "x"],
        &["find", ".", "-exec", "rm", "{}", "+"],
        &["setsid", "rm", "-rf", "src"],
        &["reviewed", "exactly"],
    ];
    let reads = [
        "app.txt",
        "src/lib.txt",
        "src/deep/one.txt",
        "src/deep/two.txt",
        "secret/one.txt",
        "absent.txt",
        "src/absent.txt",
        "docs/a.txt",
        "docs/b.txt",
        "docs/odd name.txt",
        "docs/ümlaut.txt",
        "src",
        "docs",
        "docs/c.md",
        "docs/odd\u{200b}name.txt",
        "Docs/a.txt",
    ];
    let lists =
        [".", "src", "src/deep", "docs", "secret", "absent", "src/absent", "secretly", "docs/a"];
    let commands = commands.iter().map(|argv| (EXEC, json!({"argv": argv})));
    let reads = reads.iter().map(|path| ("read_file", json!({"path": path})));
    let lists = lists.iter().map(|path| ("list_files", json!({"path": path})));
    // Commands last: one that somebody allows may change what there is to read.
    reads.chain(lists).chain(commands).collect()
}

fn rules() -> e2e::Manifest {
    let mut rules = manifest("decided")
        .rule(
            EXEC,
            json!({
                "true**": "allow",
                "echo **": {"effect": "allow", "id": "echoes", "justification": "it only prints"},
                "echo a/b": "ask",
                "ls*": "allow",
                "cat src/**": "allow",
                "cat **": "ask",
                "rm**": {"effect": "deny", "id": "no-rm"},
                "sh -c **": "allow",
                "env **": "allow",
                "timeout **": {"effect": "allow", "class": "interpreter"},
                "find **": "allow",
                "setsid **": "ask",
                "reviewed exactly": "allow",
            }),
        )
        .rule(
            "fs.read",
            json!({"src/**": "allow", "secret/**": "deny", "docs/*.txt": "ask", "*": "allow"}),
        )
        .rule("fs.list", json!({"secret**": "deny", "src/**": "ask", "*": "allow"}));
    rules.allow_commands =
        ["true", "echo", "ls", "cat", "rm", "sh", "env", "timeout", "xargs", "find", "setsid"]
            .map(str::to_owned)
            .to_vec();
    rules.budget = json!({"max_tool_calls": 120, "max_model_tokens": 1_000_000});
    rules
}

async fn start() -> Result<Rig> {
    let mut spec = Spec::new(rules(), vec![Turn::Calls(table()), Turn::Say("decided")]);
    let delegation = json!({"profile": "implementer", "task": TASK});
    let delegates = vec![Turn::Call("delegate", delegation), Turn::Say("decided")];
    let mut delegated = rules().rule("delegate", json!("allow"));
    (delegated.id, delegated.models) = ("delegated".to_owned(), vec!["delegating".to_owned()]);
    spec.manifests.push(delegated);
    spec.scripts.push(("delegating".to_owned(), delegates));
    spec.children.push((TASK, vec![Turn::Calls(table()), Turn::Say("decided")]));
    spec.files.extend([
        ("src/deep/one.txt", b"1\n".as_slice()),
        ("src/deep/two.txt", b"2\n"),
        ("secret/one.txt", b"3\n"),
        ("docs/a.txt", b"4\n"),
        ("docs/c.md", b"5\n"),
    ]);
    Rig::start(spec).await
}

/// What is compared: call by call, each part's action, subject, effect, rule and layer, or the refusal.
async fn decided(rig: &Rig, session: SessionId) -> Result<Vec<Value>> {
    let books = Books::open(rig)?;
    let lines = until("the run's end", || async {
        let lines = books.stream("agent-svc", session).await.ok()?;
        lines.iter().any(|line| line.kind == "agent.stopped").then_some(lines)
    })
    .await;
    let of_the_table = |line: &&Line| line.kind == "tool.call" && line.data["tool"] != "delegate";
    let calls: Vec<&Line> = lines.iter().filter(of_the_table).collect();
    ensure!(calls.len() == table().len(), "{} of {} calls", calls.len(), table().len());
    let of = |call: &Value, kind: &str| -> Vec<&Value> {
        let same = lines.iter().filter(|line| line.kind == kind && line.data["callId"] == *call);
        same.map(|line| &line.data).collect()
    };
    let decided = calls.into_iter().map(|line| {
        let call = &line.data["callId"];
        let parts: Vec<Value> =
            of(call, "policy.decision").into_iter().map(|data| part(data, "ruleId")).collect();
        if parts.is_empty() {
            json!({"refused": of(call, "tool.result").first().map(|data| &data["error"]["code"])})
        } else {
            Value::from(parts)
        }
    });
    Ok(decided.collect())
}

fn part(data: &Value, rule: &str) -> Value {
    json!([data["action"], data["subject"], data["effect"], data[rule], data["layer"]])
}

/// The person says no to each ask; returns the session.
async fn interactive(rig: &mut Rig, task: &str, kill_at: Option<usize>) -> Result<SessionId> {
    let mut person = Person::arrive(rig).await?;
    let session = person.open(task, None).await?;
    person.prompt(session)?;
    let mut asks = 0;
    let mut answered = std::collections::BTreeSet::new();
    loop {
        let seen = person.next().await?;
        match seen.kind.as_str() {
            "permission.requested" => {
                let ask = e2e::Ask::read(&seen)?;
                if answered.contains(&ask.permission) {
                    // Whoever attaches is sent what came before.
                    continue;
                }
                asks += 1;
                if Some(asks) == kill_at {
                    drop(person);
                    rig.kill_and_restart_all().await?;
                    person = Person::arrive(rig).await?;
                    let open = person.attach(acp::AttachParams::session(session)).await?.open;
                    ensure!(open.len() == 1, "the ask is still open");
                }
                person.answer(&ask, Decision::Deny).await?;
                answered.insert(ask.permission);
            }
            "agent.stopped" if seen.is_the_end() => {
                ensure!(asks > 10, "only {asks} asks");
                return Ok(session);
            }
            _ => (),
        }
    }
}

/// `harness run` without a terminal; `--yes` says yes to each ask.
async fn headless(rig: &Rig) -> Result<SessionId> {
    let mut command = tokio::process::Command::new(e2e::programs()?.join("harness"));
    command.arg("run").arg("--state").arg(rig.mesh.layout().root());
    command.args(["--task", "decided", "--json", "--yes", "decide"]).kill_on_drop(true);
    let output = within("harness run", command.output()).await?;
    let document: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok(SessionId::parse(document["sessionId"].as_str().context("a session")?)?)
}

/// As a service that asks sandbox-svc and nobody else.
async fn direct(rig: &Rig) -> Result<Vec<Value>> {
    let impostor = Impostor::enter(rig, "decided")?;
    impostor.fence().await?;
    impostor.open().await?;
    let mut decided = Vec::new();
    for (tool, arguments) in table() {
        decided.push(match impostor.plan(CallId::new(), tool, &arguments).await? {
            Asked::Planned { plan, .. } => {
                let plan = serde_json::to_value(&*plan)?;
                let parts = plan["parts"].as_array().context("parts")?;
                parts.iter().map(|data| part(data, "rule")).collect()
            }
            Asked::Refused(reason) => json!({"refused": reason}),
        });
    }
    Ok(decided)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_run_decides_alike() -> Result<()> {
    let mut rig = start().await?;
    let asked = direct(&rig).await?;
    let attended = interactive(&mut rig, "decided", None).await?;
    let resumed = interactive(&mut rig, "decided", Some(3)).await?;
    let child = interactive(&mut rig, "delegated", None).await?;
    let unattended = headless(&rig).await?;
    let expected: Vec<Value> = table().into_iter().zip(asked).map(called).collect();
    ensure!(expected.len() >= 60, "{} calls", expected.len());
    for (way, session) in
        [("attended", attended), ("resumed", resumed), ("child", child), ("unattended", unattended)]
    {
        let found = decided(&rig, session).await?;
        let found: Vec<Value> = table().into_iter().zip(found).map(called).collect();
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{way}");
        }
    }
    the_table_is_about_something(&expected)
}

fn called(((tool, arguments), decided): ((&'static str, Value), Value)) -> Value {
    json!({"call": [tool, arguments], "decided": decided})
}

/// Each effect is there, and what faults made other systems decide wrongly is decided as it should be.
fn the_table_is_about_something(decided: &[Value]) -> Result<()> {
    let effect = |argv: &[&str]| -> Result<Vec<&str>> {
        let row = decided
            .iter()
            .find(|row| row["call"] == json!([EXEC, {"argv": argv}]))
            .with_context(|| format!("{argv:?} is in the table"))?;
        let parts = row["decided"].as_array().with_context(|| format!("{row}"))?;
        parts.iter().map(|part| part[2].as_str().context("an effect")).collect()
    };
    let strictest = |effects: Vec<&str>| -> &'static str {
        ["deny", "ask"].into_iter().find(|effect| effects.contains(effect)).unwrap_or("allow")
    };
    for (argv, expected) in [
        (&["true"][..], "allow"),
        (&["echo", "plain"], "allow"),
        (&["echo", "a/b"], "ask"),
        (&["cat", "app.txt"], "ask"),
        (&["rm", "-rf", "src"], "deny"),
        (&["sh", "-c", "true"], "ask"),
        (&["sh", "-c", "true && rm -rf src"], "deny"),
        (&["sh", "-c", "{ rm -r -f src; }"], "deny"),
        (&["sh", "-c", "echo `rm -rf src`"], "deny"),
        (&["sh", "-c", "echo $(rm -rf src)"], "deny"),
        (&["sh", "-c", "true | xargs rm -rf"], "deny"),
        (&["sh", "-c", "case a in a) rm -rf src;; esac"], "ask"),
        (&["env", "A=1", "true"], "ask"),
        (&["env", "rm", "-rf", "src"], "deny"),
        (&["timeout", "5", "true"], "allow"),
        (&["timeout", "5", "rm", "-rf", "src"], "deny"),
        (&["find", ".", "-exec", "rm", "{}", "+"], "deny"),
        (&["setsid", "rm", "-rf", "src"], "deny"),
    ] {
        assert_eq!(strictest(effect(argv)?), expected, "{argv:?}");
    }
    Ok(())
}
