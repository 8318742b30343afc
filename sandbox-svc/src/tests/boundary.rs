//! What decides: three layers of rules as they are at the moment, never as they were when somebody was asked.

use std::fs;

use event::Digest;
use manifest::Target;
use receipt::{Effect, Layer, Part, Scope};
use serde_json::json;

use super::run::{Call, Run};
use super::world::{World, asking_manifest, manifest, open_manifest};

/// Effect, layer and rule of a plan's strictest part.
fn deciding(call: &Call) -> (Effect, Layer, &str) {
    let parts = call.plan.parts.iter();
    let part = parts.reduce(|one, next| if next.effect > one.effect { next } else { one }).unwrap();
    (part.effect, part.layer, &part.rule)
}

fn differs(run: &Run<'_>) -> Vec<event::Differs> {
    let entries = run.world.ledger.entries();
    let of = entries.into_iter().filter(|entry| entry.session == run.stream_id());
    of.filter_map(|entry| match entry.event.data {
        event::Data::CallRefused(refused) => refused.differs,
        _ => None,
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_changed_while_the_person_was_thinking() {
    let world = World::governed(&[]).await;
    let run = world.run(&asking_manifest()).await;
    let call = run.plan_exec(&["sh", "-c", "echo ran > ran"]).await;
    let receipt = run.receipt(&call, Scope::Once);
    world.ceiling("permissions: {process.exec: ask}");
    let told = run.execute_with(&call, &[&receipt]).await;
    assert_eq!(
        (told.end().as_str(), told.detail()),
        (
            "PLAN_STALE",
            "what was planned is not what would happen now; changed since: the organisation's ceiling"
        )
    );

    // What would happen now is another plan, and the record names both.
    let arguments = json!({ "argv": ["sh", "-c", "echo ran > ran"] });
    let mut now = run.planned("process.exec", &arguments).await.plan;
    now.call = call.id;
    let now = receipt::plan_digest(&now.to_bytes().unwrap());
    let ledger = &world.ledger;
    ledger.wait(|_| ledger.refusals(&run.stream_id()) == ["PLAN_STALE"]).await;
    let (expected, actual) = (Some(call.digest()), Some(now));
    assert_eq!(differs(&run), [event::Differs { path: None, expected, actual }]);

    // Taken back, the old plan holds again, and its answer is used up all the same.
    world.ceiling("");
    assert_eq!(run.execute_with(&call, &[&receipt]).await.end(), "RECEIPT_CONSUMED");
    let anew = run.plan_exec(&["sh", "-c", "echo ran > ran"]).await;
    let deny = "permissions: {process.exec: {'**': {effect: deny, justification: not this week}}}";
    world.tenant_ceiling("local", deny);
    let receipt = run.receipt(&anew, Scope::Once);
    let told = run.execute_with(&anew, &[&receipt]).await;
    assert_eq!(told.end(), "POLICY_DENIED");
    assert_eq!(
        told.detail(),
        "process.exec of sh -c 'echo ran > ran' is denied by the tenant's rule permissions.process.exec[**] (not this week) and 1 more"
    );
    assert!(!run.copy().join("ran").exists());
    assert_eq!(world.containers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_changed_while_the_person_was_thinking() {
    let world = World::new(&[("a.txt", "old\n"), ("gone.txt", "here\n")]).await;
    let run = world
        .run(&manifest(
            "  fs.read: allow\n  fs.write: allow\n  process.exec: allow\n  patch.import: ask\n",
        ))
        .await;
    run.sh("echo new > a.txt; rm gone.txt").await;
    let host = |name: &str| world.workspace().join(name);
    let digest = |text: &str| Some(Digest::of(text.as_bytes()));
    let mut recorded = Vec::new();
    for (name, change, expected, actual) in [
        ("a.txt", Some("theirs\n"), digest("old\n"), digest("theirs\n")),
        ("gone.txt", None, digest("here\n"), None),
    ] {
        let call = run.plan("import_patch", json!({})).await;
        let receipt = run.receipt(&call, Scope::Once);
        let before = fs::read(host(name)).unwrap();
        match change {
            Some(text) => fs::write(host(name), text).unwrap(),
            None => fs::remove_file(host(name)).unwrap(),
        }
        assert_eq!(run.execute_with(&call, &[&receipt]).await.end(), "HOST_CHANGED");
        let now = host(name).exists().then(|| fs::read_to_string(host(name)).unwrap());
        assert_eq!(now.as_deref(), change, "nothing is written");
        recorded.push(event::Differs { path: Some(name.to_owned()), expected, actual });
        fs::write(host(name), before).unwrap();
        assert_eq!(run.execute_with(&call, &[&receipt]).await.end(), "RECEIPT_CONSUMED");
    }
    let ledger = &world.ledger;
    ledger.wait(|_| ledger.refusals(&run.stream_id()).len() == 4).await;
    assert_eq!(differs(&run), recorded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standing_allow_is_for_the_exact_command_under_the_very_same_policy() {
    let world = World::governed(&[]).await;
    let run = world.run(&asking_manifest()).await;
    let first = run.plan_exec(&["sh", "-c", "true && rm -rf ./build"]).await;
    let standing = run.receipt(&first, Scope::Run);
    assert_eq!(run.execute_with(&first, &[&standing]).await.end(), "exited 0");
    for argv in [
        &["sh", "-c", "true && rm -rf ./builds"][..],
        &["sh", "-c", "true", "&&", "rm", "-rf", "./build"],
        &["sh", "-c", "rm -rf src"],
        &["true"],
    ] {
        let other = run.plan_exec(argv).await;
        let told = run.execute_with(&other, &[&standing]).await;
        assert_eq!(told.end(), "RECEIPT_ACTION_MISMATCH", "{argv:?}");
    }
    world.ceiling("permissions: {process.exec: ask}");
    let again = run.plan_exec(&["sh", "-c", "true && rm -rf ./build"]).await;
    let told = run.execute_with(&again, &[&standing]).await;
    assert_eq!(told.end(), "RECEIPT_ACTION_MISMATCH", "another policy");
    // A deny stands over it.
    world.ceiling("hard_deny: {process.exec: ['rm**']}");
    let denied = run.plan_exec(&["sh", "-c", "true && rm -rf ./build"]).await;
    assert_eq!(
        deciding(&denied),
        (Effect::Deny, Layer::Organisation, "hard_deny.process.exec[rm**]")
    );
    let told = run.execute_with(&denied, &[&standing]).await;
    assert_eq!(
        (told.end().as_str(), told.detail()),
        (
            "POLICY_DENIED",
            "process.exec of rm -rf ./build is denied by the organisation's rule hard_deny.process.exec[rm**]"
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_inside_a_command_is_judged() {
    let world = World::new(&[("build/x", "x")]).await;
    let rules = "  process.exec: {'echo**': allow, 'sh -c **': allow, 'env **': allow, 'find **': allow, \
                 'setsid **': allow, 'rm -rf**': deny, 'timeout **': {effect: allow, class: interpreter}}\n";
    let text =
        manifest(rules).replace("[sh, ", "[sh, env, xargs, find, setsid, timeout, echo, rm, ");
    let run = world.run(&text).await;
    let denied = "permissions.process.exec[rm -rf**]";
    for argv in [
        &["sh", "-c", "echo x && rm -rf x"][..],
        &["sh", "-c", "{ rm -rf x; }"],
        &["sh", "-c", "echo `rm -rf x`"],
        &["sh", "-c", "echo $(rm -rf x)"],
        &["sh", "-c", "echo x | xargs rm -rf"],
        &["sh", "-c", "sh -c 'rm -rf x'"],
        &["env", "A=1", "rm", "-rf", "x"],
        &["setsid", "rm", "-rf", "x"],
        &["timeout", "5", "rm", "-rf", "x"],
        &["find", ".", "-exec", "rm", "-rf", "{}", "+"],
        &["rm", "-rf", "x"],
    ] {
        let call = run.plan_exec(argv).await;
        assert_eq!(deciding(&call), (Effect::Deny, Layer::Manifest, denied), "{argv:?}");
        let receipt = run.receipt(&call, Scope::Once);
        assert_eq!(run.execute_with(&call, &[&receipt]).await.end(), "POLICY_DENIED");
    }
    for (argv, effect, rule) in [
        (&["echo", "x"][..], Effect::Allow, "permissions.process.exec[echo**]"),
        (&["timeout", "5", "echo", "x"], Effect::Allow, "permissions.process.exec[timeout **]"),
        (&["sh", "-c", "echo x"], Effect::Ask, "interpreter"),
        (&["sh", "-c", "eval $X"], Effect::Ask, "unparsable"),
    ] {
        let call = run.plan_exec(argv).await;
        assert_eq!((call.plan.effect, deciding(&call).2), (effect, rule), "{argv:?}");
    }
    assert!(run.copy().join("build/x").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_task_widens_what_an_administrator_narrows() {
    let world = World::governed(&[("src/a", "x"), ("infra/b", "x")]).await;
    world.ceiling("permissions: {fs.write: {'infra/**': deny, '*': allow}}\nhard_deny: {process.exec: ['dd**']}");
    let rest = "{effect: allow, class: interpreter}";
    let rules = format!("permissions: {{process.exec: {{'cat**': ask, '*': {rest}}}}}");
    world.tenant_ceiling("local", &rules);
    let run = world.run(&open_manifest()).await;
    let cat = run.plan_exec(&["cat", "src/a"]).await;
    let all = "permissions.process.exec";
    assert_eq!(deciding(&cat), (Effect::Ask, Layer::Tenant, "permissions.process.exec[cat**]"));
    let shown: Vec<_> = cat.plan.parts[0]
        .matching
        .iter()
        .map(|it| (it.layer, it.rule.as_str(), it.effect))
        .collect();
    assert!(shown.contains(&(Layer::Manifest, all, Effect::Allow)), "{shown:?}");
    assert_eq!(run.execute(&cat, None).await.end(), "RECEIPT_REQUIRED");
    let layers: Vec<_> = cat.plan.policies.iter().map(|policy| policy.layer).collect();
    assert_eq!(layers, [Layer::Organisation, Layer::Tenant]);
    let dd = run.plan_exec(&["dd"]).await;
    assert_eq!((dd.plan.effect, deciding(&dd).1), (Effect::Deny, Layer::Organisation));

    run.sh("echo y > src/a; echo y > infra/b").await;
    let import = run.plan("import_patch", json!({})).await;
    let denied = "permissions.fs.write[infra/**]";
    assert_eq!(deciding(&import), (Effect::Deny, Layer::Organisation, denied));
    for path in ["src/../.git/config", "../x", "/etc/passwd"] {
        let refused = run.try_plan("read_file", &json!({ "path": path })).await;
        assert_eq!(refused.unwrap_err(), "PATH_INVALID", "{path}");
    }
}

/// Paths of a patch with the rule that decided each, and whether somebody must be asked.
fn written(call: &Call) -> Vec<(String, Effect, Layer, String)> {
    let of = |part: &Part| {
        let subject = part.subject.as_ref().and_then(|subject| subject.as_str()).unwrap();
        (subject.to_owned(), part.effect, part.layer, part.rule.clone())
    };
    call.plan.parts.iter().filter(|part| part.action == "fs.write").map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_later_is_asked_for_once_and_git_is_never_written() {
    let world = World::governed(&[("app.txt", "x")]).await;
    let run = world.run(&open_manifest()).await;
    let git = [
        ".git/hooks/pre-commit",
        ".git/config",
        ".GIT/config",
        ".git./x",
        ".git /x",
        "git~1/x",
        ".g\u{200c}it/config",
        "sub/.git/config",
        "\u{ff0e}git/x",
    ];
    let protected = [
        ".gitattributes",
        ".github/workflows/x.yml",
        ".harness/policy.toml",
        ".vscode/tasks.json",
        "AGENTS.md",
        "tasks/fix.yaml",
    ];
    let plain = ["app.txt", "docs/guide.md"];
    for path in git.iter().chain(&protected).chain(&plain).chain(&[".envrc"]) {
        let path = run.copy().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "changed").unwrap();
    }
    let call = run.plan("import_patch", json!({})).await;
    assert_eq!((call.plan.effect, &call.plan.scopes), (Effect::Ask, &vec![Scope::Once]));
    let patch = call.plan.patch.as_ref().unwrap();
    let stays: Vec<_> = patch.not_carried.as_ref().unwrap().entries.iter().collect();
    let reason = |path: &str| {
        let found = stays.iter().find(|entry| entry.path.as_str() == Some(path));
        found.map(|entry| entry.reason.as_str())
    };
    let rulebook = run.planned("import_patch", &json!({})).await.rulebook;
    for path in git {
        let directory = path.split_at(path.rfind(['/']).unwrap()).0;
        let directory = directory.strip_suffix("/hooks").unwrap_or(directory);
        assert_eq!(reason(directory), Some("git_metadata"), "{path}");
        // Whatever the copy would let through, the rules do not.
        let decision = rulebook.decide_write(path, Target::File);
        assert_eq!((decision.effect, decision.rule.as_str()), (Effect::Deny, "git_directory"));
    }
    assert_eq!(reason(".envrc"), Some("secret_name"));
    let rule = |path: &str| {
        let parts = written(&call);
        let found = parts.into_iter().find(|part| part.0 == path);
        found.map(|(_, effect, layer, rule)| (effect, layer, rule))
    };
    for path in protected {
        let expected = (Effect::Ask, Layer::System, "protected_paths".to_owned());
        assert_eq!(rule(path), Some(expected), "{path}");
        assert!(patch.protected.contains(&path.into()), "{path}");
    }
    for path in plain {
        let expected = (Effect::Allow, Layer::Manifest, "permissions.fs.write".to_owned());
        assert_eq!(rule(path), Some(expected), "{path}");
    }
    let wide = run.receipt(&call, Scope::Run);
    assert_eq!(run.execute_with(&call, &[&wide]).await.end(), "RECEIPT_SCOPE_MISMATCH");
    assert_eq!(fs::read_dir(world.workspace()).unwrap().count(), 1);

    // An administrator's list takes the place of the built-in one; `.git` stays what it is.
    world.ceiling("protected_paths: ['docs/**']");
    let call = run.plan("import_patch", json!({})).await;
    let asked: Vec<_> = written(&call).into_iter().filter(|part| part.1 == Effect::Ask).collect();
    let asked: Vec<_> = asked.iter().map(|part| part.0.as_str()).collect();
    assert_eq!(asked, ["docs", "docs/guide.md"]);
    let receipt = run.receipt(&call, Scope::Once);
    assert_eq!(run.execute_with(&call, &[&receipt]).await.end(), "done");
    assert!(world.workspace().join(".vscode/tasks.json").exists());
    let names: Vec<_> = fs::read_dir(world.workspace()).unwrap().collect();
    assert!(
        names
            .iter()
            .all(|it| { !manifest::is_git(&it.as_ref().unwrap().file_name().to_string_lossy()) })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declaration_that_is_too_wide_is_refused_before_the_engine_is_asked() {
    let world = World::new(&[]).await;
    let session = event::id::SessionId::new();
    let owner = proto::common::v1::Owner {
        session_id: session.to_string(),
        node: "node-a".to_owned(),
        epoch: 1,
    };
    // The engine would say that it has no such image.
    let text = open_manifest().replace(super::world::IMAGE, "nobody/has-this:1");
    let refused = async |text: &str| {
        let grant = world.sign(&world.grant(session, text));
        world.fence(&owner, &grant, text).await.unwrap_err().reason
    };
    for path in ["/", "/etc/**", "../x/**", "src/**,ro", "a\\nb", "", "a/../b", "a\\\\b"] {
        let wide = text.replace("allowed_paths: ['**']", &format!("allowed_paths: [\"{path}\"]"));
        assert_eq!(refused(&wide).await, "MANIFEST_INVALID", "{path}");
    }
    let mount = |path: &str| {
        text.replace("allowed_paths: ['**']", &format!("allowed_paths: ['{path}']"))
            .replace("backend: oci", "backend: oci\n  mode: mount")
    };
    assert_eq!(refused(&mount("**")).await, "MANIFEST_INVALID");
    assert_eq!(refused(&mount("link/**")).await, "WORKSPACE_OF_ROOT");
    assert_eq!(refused(&text).await, "IMAGE_UNKNOWN", "now the engine is asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_may_no_longer_be_read_is_no_longer_seen() {
    let world = World::governed(&[("private/x", "x"), ("app.txt", "x")]).await;
    let run = world.run(&open_manifest()).await;
    assert_eq!(run.sh("cat private/x").await.end(), "exited 0");
    world.ceiling("permissions: {fs.read: {'private/**': deny, '*': allow}}");
    // It is in the copy that was taken, so no command may see that.
    let call = run.plan_exec(&["cat", "app.txt"]).await;
    let denied = "permissions.fs.read[private/**]";
    assert_eq!(deciding(&call), (Effect::Deny, Layer::Organisation, denied));
    assert_eq!(run.execute(&call, None).await.end(), "POLICY_DENIED");
    let listed = run.plan("list_files", json!({})).await.result.unwrap().to_string();
    assert!(!listed.contains("private/x") && listed.contains("app.txt"), "{listed}");
    // A copy that is taken now lacks it, and commands run there.
    let anew = world.run(&open_manifest()).await;
    assert_eq!(anew.sh("cat private/x").await.end(), "exited 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_ceiling_is_broken_from_the_first_day_can_do_nothing() {
    let world = World::governed(&[]).await;
    let run = world.run(&open_manifest()).await;
    world.tenant_ceiling("local", "permissions: {process.exec: perhaps}");
    for tool in ["list_files", "inspect_patch"] {
        assert_eq!(run.try_plan(tool, &json!({})).await.unwrap_err(), "CEILING_UNUSABLE");
    }
    world.tenant_ceiling("local", "permissions: {process.exec: ask}");
    assert_eq!(run.plan_exec(&["true"]).await.plan.effect, Effect::Ask);
    let ledger = &world.ledger;
    let refused = ["CEILING_UNUSABLE", "CEILING_UNUSABLE"];
    ledger.wait(|_| ledger.refusals(&run.stream_id()) == refused).await;
}
