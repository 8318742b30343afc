//! A repository's own programs never run on the host: nothing here asks git, and what a tree says about git is bytes.
//! A canary that would write a file shows it, after it was shown to work with git itself.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::world::{World, open_manifest};

/// Everything that makes git run a program of the repository's choice while it only looks.
fn plant(workspace: &Path, fired: &Path) -> PathBuf {
    let canary = workspace.join("canary.sh");
    fs::write(&canary, format!("#!/bin/sh\ntouch '{}'\ncat\n", fired.display())).unwrap();
    fs::set_permissions(&canary, fs::Permissions::from_mode(0o755)).unwrap();
    let program = canary.display();
    let config = format!(
        "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {program}\n\thooksPath = .\n\
         [diff \"evil\"]\n\ttextconv = {program}\n\tcommand = {program}\n\
         [filter \"evil\"]\n\tclean = {program}\n\tsmudge = {program}\n\trequired = true\n\
         [diff]\n\texternal = {program}\n[alias]\n\tst = !{program}\n"
    );
    fs::write(workspace.join(".git/config"), config).unwrap();
    fs::write(workspace.join(".gitattributes"), "*.txt diff=evil filter=evil\n").unwrap();
    for hook in ["post-checkout", "pre-commit", "post-index-change", "fsmonitor-watchman"] {
        let hook = workspace.join(".git/hooks").join(hook);
        fs::copy(&canary, &hook).unwrap();
    }
    canary
}

fn git(workspace: &Path, arguments: &[&str]) {
    let done = Command::new("git")
        .current_dir(workspace)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .args(["-c", "user.name=a", "-c", "user.email=a@b.test"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(done.status.success(), "{arguments:?}: {done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_a_repository_configures_never_run_on_the_host() {
    let world = World::new(&[("a.txt", "one\n"), ("src/b.txt", "two\n")]).await;
    let (workspace, fired) = (world.workspace(), world.dir.path().join("fired"));
    git(&workspace, &["init", "--quiet"]);
    git(&workspace, &["add", "--all"]);
    git(&workspace, &["commit", "--quiet", "--message", "all"]);
    plant(&workspace, &fired);
    git(&workspace, &["status", "--short"]);
    assert!(fired.exists(), "the canary works");
    fs::remove_file(&fired).unwrap();

    let run = world.run(&open_manifest()).await;
    // The same once more from within: what a command plants in its copy.
    let plant = "mkdir -p .git/hooks && printf '[core]\\n\\tfsmonitor = ./canary.sh\\n' > .git/config && \
                 cp canary.sh .git/hooks/pre-commit && printf '*.txt diff=evil filter=evil\\n' >> .gitattributes && \
                 echo three > a.txt && echo new > c.txt";
    assert_eq!(run.sh(plant).await.end(), "exited 0");
    run.plan("list_files", json!({})).await;
    run.plan("read_file", json!({"path": "a.txt"})).await;
    // Whatever looks for something or says what changed reads bytes, and asks nobody.
    let listed = run.plan("list_files", json!({"path": "src"})).await.result.unwrap();
    assert!(listed.to_string().contains("src/b.txt"), "{listed}");
    let found = run.plan("search_files", json!({"query": "three"})).await.result.unwrap();
    assert!(found.to_string().contains("a.txt"), "{found}");
    let queries = json!({"queries": [{"query": "new"}, {"query": "fsmonitor"}]});
    let found = run.plan("search_many", queries).await.result.unwrap().to_string();
    assert!(found.contains("c.txt") && !found.contains(".git/"), "{found}");
    for tool in ["workspace_diff", "mutation_audit", "environment_status"] {
        let told = run.plan(tool, json!({})).await.result.unwrap();
        assert!(told.is_object(), "{tool}: {told}");
    }
    assert!(!fired.exists(), "a program of the repository ran on the host");
    let inspected = run.plan("inspect_patch", json!({})).await.result.unwrap();
    let paths: Vec<_> = inspected["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["path"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(paths, [".gitattributes", "a.txt", "c.txt"]);
    assert_eq!(inspected["notCarried"], json!([{"path": ".git", "reason": "git_metadata"}]));
    let call = run.plan("import_patch", json!({})).await;
    // What git obeys is protected, so a person is asked.
    assert_eq!(run.execute(&call, Some(&run.approve(&call))).await.end(), "done");
    run.close().await.unwrap();
    assert_eq!(fs::read_to_string(workspace.join("a.txt")).unwrap(), "three\n");
    assert!(!fired.exists(), "a program of the repository ran on the host");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ignore_file_deletes_nothing() {
    let world = World::new(&[("keep.txt", "kept\n"), ("sub/also.txt", "kept\n")]).await;
    let run = world.run(&open_manifest()).await;
    let ignore = "printf 'keep.txt\\n*\\n' > .gitignore && printf '*\\n' > sub/.gitignore && \
                  mkdir -p .git/info && printf '*\\n' > .git/info/exclude";
    assert_eq!(run.sh(ignore).await.end(), "exited 0");
    let inspected = run.plan("inspect_patch", json!({})).await.result.unwrap();
    assert_eq!(inspected["deletions"], json!([]));
    assert_eq!(inspected["totals"]["entries"], json!(2));
    let call = run.plan("import_patch", json!({})).await;
    assert_eq!(run.execute(&call, None).await.end(), "done");
    for name in ["keep.txt", "sub/also.txt"] {
        assert_eq!(fs::read_to_string(world.workspace().join(name)).unwrap(), "kept\n");
    }
}
