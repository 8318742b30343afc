//! Files of rules: one that cannot be used stops the start and is named with its line, and what they say together is never
//! wider than what one of them says.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use e2e::{Admin, Asked, Impostor, Person, Rig, Spec, Turn, manifest};
use event::Effect;
use event::id::CallId;
use serde_json::{Value, json};
use transport::Service;

use super::{EXEC, argv, ended, of_kind, result};

/// What is said when the service does not start any more.
async fn refused(rig: &mut Rig, service: Service) -> Result<String> {
    let error = rig.mesh.restart(service).await.err().context("it started")?;
    Ok(error.to_string())
}

const TASK: &str = "id: extra\ntitle: T\ngoal: g\nacceptance: [a]\nallowed_paths: [src/**]\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_task_file_that_cannot_be_used_stops_the_gateway() -> Result<()> {
    let mut rig = Rig::start(Spec::new(manifest("sound"), vec![Turn::Say("nothing")])).await?;
    let path = rig.mesh.layout().manifests().join("extra.yaml");
    for (text, mode, words) in [
        (format!("{TASK}permissions: {{}}\n"), 0o000, "extra.yaml"),
        (String::new(), 0o644, "extra.yaml:1:1"),
        (format!("{TASK}permissions: {{}}\nunknown: 1\n"), 0o644, "extra.yaml:7:1"),
        (format!("{TASK}permissions: {{fs.raed: allow}}\n"), 0o644, "extra.yaml:6:"),
        (format!("{TASK}permissions: {{fs.read: perhaps}}\n"), 0o644, "extra.yaml:6:"),
        (format!("{TASK}permissions: {{fs.read: allow, fs.read: deny}}\n"), 0o644, "extra.yaml:6:"),
        (format!("{TASK}permissions: {{fs.read: {{}}}}\n"), 0o644, "extra.yaml:6:"),
        (format!("{TASK}permissions: [\n"), 0o644, "extra.yaml:"),
        (TASK.to_owned(), 0o644, "extra.yaml:"),
    ] {
        put(&path, &text, mode)?;
        let told = refused(&mut rig, Service::Gateway).await?;
        assert!(told.contains(words), "{text:?}: no {words:?} in {told:?}");
        assert!(told.contains("gateway"), "{told}");
    }
    // An empty list is one: it asks for everything.
    put(&path, &format!("{TASK}permissions: {{}}\n"), 0o644)?;
    rig.mesh.restart(Service::Gateway).await?;
    Ok(())
}

fn put(path: &Path, text: &str, mode: u32) -> Result<()> {
    std::fs::write(path, text)?;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrators_file_that_cannot_be_used_stops_sandbox_svc() -> Result<()> {
    let admin = Admin::new()?;
    let spec = admin.over(Spec::new(manifest("sound"), vec![Turn::Say("nothing")]));
    let mut rig = Rig::start(spec).await?;
    let head = "kind: ceiling\nid: top\n";
    for (name, text, words) in [
        ("ceiling.yaml", String::new(), "ceiling.yaml:1:1"),
        ("ceiling.yaml", format!("{head}unknown: 1\n"), "ceiling.yaml:3:1"),
        ("ceiling.yaml", "id: top\n".to_owned(), "ceiling.yaml:1:1"),
        (
            "tenants/default.yaml",
            format!("{head}permissions: {{fs.read: perhaps}}\n"),
            "default.yaml:3:",
        ),
        ("approvers.yaml", String::new(), "--approver-keys"),
        ("approvers.yaml", "approvers: [{subject: ada}]\n".to_owned(), "--approver-keys"),
    ] {
        let path = admin.path(name);
        let before = std::fs::read_to_string(&path).ok();
        put(&path, &text, 0o644)?;
        let told = refused(&mut rig, Service::SandboxSvc)
            .await
            .with_context(|| format!("{name} {text:?}"))?;
        assert!(told.contains(words), "{name} {text:?}: no {words:?} in {told:?}");
        match before {
            Some(before) => put(&path, &before, 0o644)?,
            None => std::fs::remove_file(&path)?,
        }
    }
    // What copies workspaces may read any file of the host, so that a mode keeps nothing from it; this does.
    for name in ["ceiling.yaml", "approvers.yaml", "tenants"] {
        let (path, aside) = (admin.path(name), admin.path("aside"));
        std::fs::rename(&path, &aside)?;
        let told = refused(&mut rig, Service::SandboxSvc).await?;
        assert!(told.contains(name), "no {name}: {told}");
        std::fs::rename(&aside, &path)?;
    }
    // An empty list has no opinion.
    put(&admin.path("ceiling.yaml"), &format!("{head}permissions: {{}}\n"), 0o644)?;
    rig.mesh.restart(Service::SandboxSvc).await?;
    Ok(())
}

async fn enter(rig: &Rig, task: &str, manifest: Option<String>) -> Result<Impostor> {
    let mut impostor = Impostor::enter(rig, task)?;
    if let Some(text) = manifest {
        impostor.manifest = text.into_bytes();
    }
    impostor.fence().await?;
    impostor.open().await?;
    Ok(impostor)
}

async fn effect(impostor: &Impostor, tool: &str, arguments: &Value) -> Result<Effect> {
    Ok(impostor.planned(CallId::new(), tool, arguments).await?.0.effect)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_of_permissions_asks_for_all_of_it() -> Result<()> {
    let mut rules = manifest("unruled");
    rules.permissions = json!({});
    let rig = Rig::start(Spec::new(rules, vec![Turn::Say("nothing")])).await?;
    let impostor = enter(&rig, "unruled", None).await?;
    for (tool, arguments) in [
        ("list_files", json!({})),
        ("read_file", json!({"path": "app.txt"})),
        (EXEC, argv(&["true"])),
    ] {
        assert_eq!(effect(&impostor, tool, &arguments).await?, Effect::Ask, "{tool}");
    }
    Ok(())
}

/// The same rules, one of them after the other in every order.
const RULES: [&str; 3] = ["'true *': allow", "'true ?': deny", "'**': ask"];
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
const DECIDED: [(&[&str], Effect); 4] = [
    (&["true", "x"], Effect::Deny),
    (&["true", "xy"], Effect::Allow),
    (&["true", "x/y"], Effect::Ask),
    (&["true"], Effect::Ask),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_rules_says_nothing_in_any_layer() -> Result<()> {
    let admin = Admin::new()?;
    let rules = manifest("ordered").rule(EXEC, json!("RULES"));
    let wide = manifest("wide").rule(EXEC, json!("allow"));
    let mut spec = Spec::new(wide, vec![Turn::Say("nothing")]);
    spec.manifests.push(manifest("ordered"));
    let rig = Rig::start(admin.over(spec)).await?;
    let governed = enter(&rig, "wide", None).await?;
    for order in ORDERS {
        let ordered = format!("{{{}}}", order.map(|at| RULES[at]).join(", "));
        let text = rules.text(&rig.image).replace("\"RULES\"", &ordered);
        let task = enter(&rig, "ordered", Some(text)).await?;
        for (items, wanted) in DECIDED {
            assert_eq!(effect(&task, EXEC, &argv(items)).await?, wanted, "{ordered} {items:?}");
        }
        admin.ceiling(&format!("permissions: {{process.exec: {ordered}}}"))?;
        for (items, wanted) in DECIDED {
            assert_eq!(effect(&governed, EXEC, &argv(items)).await?, wanted, "{ordered} {items:?}");
        }
        admin.ceiling("")?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_administrator_denies_no_task_and_no_person_allows() -> Result<()> {
    let admin = Admin::new()?;
    admin.ceiling("permissions: {process.exec: {'sleep **': deny, '**': allow}, patch.import: deny}\nhard_deny: {process.exec: ['true**']}")?;
    admin.tenant("local", "permissions: {process.exec: allow, patch.import: allow}")?;
    let turns = vec![
        Turn::Call(EXEC, argv(&["true"])),
        Turn::Call(EXEC, argv(&["sleep", "0"])),
        Turn::Call(EXEC, argv(&["sh", "-c", "echo mine > app.txt; true"])),
        Turn::Call(EXEC, argv(&["sh", "-c", "echo mine > app.txt"])),
        Turn::Call("import_patch", json!({})),
        Turn::Say("understood"),
    ];
    let all = json!({"**": {"effect": "allow", "class": "interpreter"}, "true": "allow", "sleep 0": "allow"});
    let rules = manifest("narrowed").rule(EXEC, all).rule("patch.import", json!("allow"));
    let rig = Rig::start(admin.over(Spec::new(rules, turns))).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("narrowed", None).await?;
    person.prompt(session)?;
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(result(&mut person).await?);
    }
    assert_eq!(told, ["PERMISSION_DENIED"; 3]);
    // The organisation's ceiling does not say that it means interpreters, so that somebody is asked.
    let ask = person.next_ask().await?;
    person.answer(&ask, acp::Decision::Allow).await?;
    assert_eq!(result(&mut person).await?, "ok");
    assert_eq!(result(&mut person).await?, "PERMISSION_DENIED");
    let lines = ended(&rig, session, "agent-svc").await?;
    let denied: Vec<Value> = of_kind(&lines, "policy.decision")
        .into_iter()
        .filter(|data| data["effect"] == "deny")
        .map(|data| json!([data["layer"], data["ruleId"]]))
        .collect();
    let hard = json!(["organisation", "hard_deny.process.exec[true**]"]);
    let sleep = json!(["organisation", "permissions.process.exec[sleep **]"]);
    let import = json!(["organisation", "permissions.patch.import"]);
    assert_eq!(denied, [hard.clone(), sleep, hard, import]);
    let effects = ended(&rig, session, "sandbox-svc").await?;
    assert_eq!(of_kind(&effects, "call.started").len(), 1);
    assert_eq!(std::fs::read(rig.workspace.join("app.txt"))?, b"broken\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_is_normal_before_it_is_matched() -> Result<()> {
    let rules = manifest("spelt")
        .rule("fs.read", json!({"src/**": "allow", "secret/**": "deny", "*": "ask"}));
    let mut spec = Spec::new(rules, vec![Turn::Say("nothing")]);
    spec.files.push(("secret/x", b"x\n"));
    let rig = Rig::start(spec).await?;
    let impostor = enter(&rig, "spelt", None).await?;
    for path in [
        "src/../.git/config",
        "src/../secret/x",
        "../x",
        "/etc/passwd",
        "src//lib.txt",
        "src/..",
        "src\\lib.txt/../x",
    ] {
        let asked = impostor.plan(CallId::new(), "read_file", &json!({"path": path})).await?;
        assert_eq!(asked, Asked::Refused("PATH_INVALID".to_owned()), "{path}");
    }
    for (path, wanted) in [
        ("src/lib.txt", Effect::Allow),
        ("./src/lib.txt", Effect::Allow),
        ("./secret/x", Effect::Deny),
        ("secret/x", Effect::Deny),
        ("app.txt", Effect::Ask),
    ] {
        let decided = effect(&impostor, "read_file", &json!({"path": path})).await?;
        assert_eq!(decided, wanted, "{path}");
    }
    Ok(())
}
