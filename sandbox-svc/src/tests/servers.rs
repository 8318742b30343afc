//! Tool servers of a task in containers of their own: what is decided of them and by whom, that they stand still between
//! calls, that whatever they do ends in time, and that nothing of them is left.

mod ends;
mod world;

use std::fs;

use receipt::{Effect, EffectClass, Network, Scope};
use serde_json::json;

use self::world::{World, allowed, manifest};
use crate::mcp::tests::peer;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_official_library_is_called_and_what_it_wrote_is_in_the_patch() {
    let world = World::new(&[("notes.py", peer::SERVER)]).await;
    let run = world.run(&allowed()).await;
    let listed = run.list("notes").await;
    assert_eq!(listed.end(), "done");
    let listed = listed.result();
    let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["add_note", "read_notes"]);
    assert_eq!(listed["tools"][1]["hints"], json!({ "readOnlyHint": true }));
    assert_eq!((&listed["started"], &listed["untrusted"]), (&json!(true), &json!(true)));

    let told = run.call("notes", "read_notes", json!({ "note": "a" })).await;
    assert_eq!(told.end(), "done");
    let expected = json!({
        "server": "notes", "tool": "read_notes", "untrusted": true, "isError": false,
        "content": [{"type": "text", "text": "note a", "bytes": 6}],
        "structured": {"result": "note a"},
    });
    assert_eq!(told.result(), expected);
    let patch = run.plan("inspect_patch", json!({})).await.result.unwrap();
    assert_eq!(patch["entries"][0]["path"], "read.log", "{patch}");
    assert_eq!(run.list("notes").await.result()["started"], json!(false));

    run.close().await.unwrap();
    assert_eq!(world.containers(), Vec::<String>::new());
    world.told_of(&run.stream_id(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_planned_as_the_command_that_it_is_and_a_call_in_full() {
    let world = World::hostile().await;
    let run = world.run(&manifest("  process.exec: ask\n  mcp.call: ask\n")).await;
    let start = run.plan("mcp_tools", json!({ "server": "s" })).await;
    assert_eq!((start.plan.effect, start.plan.action.as_str()), (Effect::Ask, "process.exec"));
    assert_eq!(start.plan.argv, Some(vec!["python3".to_owned(), "hostile.py".to_owned()]));
    assert_eq!(start.plan.network, Network::None);
    assert_eq!(run.execute(&start, None).await.end(), "RECEIPT_REQUIRED");
    assert_eq!(world.containers(), Vec::<String>::new());
    let approved = run.approve(&start);
    assert_eq!(run.execute(&start, Some(&approved)).await.end(), "done");

    let arguments = json!({ "server": "s", "tool": "count", "arguments": { "a": "b" } });
    let call = run.plan("mcp_call", arguments).await;
    let plan = &call.plan;
    assert_eq!((plan.effect, plan.effect_class), (Effect::Ask, EffectClass::Staged));
    assert_eq!((plan.action.as_str(), plan.parts.len()), ("mcp.call", 1));
    assert_eq!(plan.subject, Some("s/count".into()));
    let shown = plan.mcp.clone().unwrap().call.unwrap();
    assert_eq!(shown.arguments, json!({ "a": "b" }).as_object().unwrap().clone());
    assert_eq!(shown.description.as_deref(), Some("Reads."));
    assert_eq!(shown.hints.get("readOnlyHint"), Some(&true));
    let limits = plan.limits.unwrap();
    assert_eq!((limits.time_ms, limits.output), (8_000, 64 << 10));
    assert_eq!(run.execute(&call, None).await.end(), "RECEIPT_REQUIRED");
    assert!(!run.copy().join("count.log").exists());
    let approved = run.approve(&call);
    assert_eq!(run.execute(&call, Some(&approved)).await.end(), "done");
    assert_eq!(fs::read_to_string(run.copy().join("count.log")).unwrap(), "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_says_it_only_reads_is_denied_and_asked_for_like_any() {
    let world = World::hostile().await;
    let rules = "  process.exec: allow\n  mcp.call: {'s/c*': deny, 's/turn': allow, '*': ask}\n";
    let run = world.run(&manifest(rules)).await;
    run.list("s").await;
    let of = async |tool: &str| {
        run.plan("mcp_call", json!({ "server": "s", "tool": tool })).await.plan.effect
    };
    assert_eq!(of("count").await, Effect::Deny);
    assert_eq!(of("turn").await, Effect::Allow);
    assert_eq!(of("ask").await, Effect::Ask);
    let denied = run.call("s", "count", json!({})).await;
    assert_eq!(denied.end(), "POLICY_DENIED");
    let vouched = json!({ "server": "s", "tool": "count", "risk": "low" });
    assert_eq!(run.try_plan("mcp_call", &vouched).await.unwrap_err(), "ARGUMENTS_INVALID");
    // What the rules say, not whether anybody wrote one.
    let unruled = world.run(&manifest("  process.exec: allow\n")).await;
    unruled.list("s").await;
    let call = unruled.plan("mcp_call", json!({ "server": "s", "tool": "count" })).await;
    assert_eq!(call.plan.effect, Effect::Ask);
    // A command that is denied is neither started nor called on.
    let denied = world.run(&manifest("  process.exec: deny\n  mcp.call: allow\n")).await;
    let start = denied.plan("mcp_tools", json!({ "server": "s" })).await;
    assert_eq!(start.plan.effect, Effect::Deny);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_the_manifest_offers_and_the_server_lists_is_there() {
    let world = World::hostile().await;
    let run = world.run(&allowed()).await;
    let of = async |server: &str, tool: &str| {
        run.try_plan("mcp_call", &json!({ "server": server, "tool": tool })).await.unwrap_err()
    };
    assert_eq!(of("s", "count").await, "MCP_NOT_LISTED");
    assert_eq!(of("other", "count").await, "MCP_SERVER_UNKNOWN");
    let unknown = run.try_plan("mcp_tools", &json!({ "server": "other" })).await;
    assert_eq!(unknown.unwrap_err(), "MCP_SERVER_UNKNOWN");
    let listed = run.list("s").await.result();
    assert_eq!(listed["notOffered"], json!(1));
    assert_eq!(listed["notListed"], json!("absent"));
    let two = json!({ "server": "s", "names": ["count", "hidden"] });
    let two = run.plan("mcp_tools", two).await;
    let two = run.execute(&two, None).await.result();
    assert_eq!(two["tools"].as_array().unwrap().len(), 1, "{two}");
    assert_eq!(of("s", "hidden").await, "MCP_TOOL_UNKNOWN");
    assert_eq!(of("s", "absent").await, "MCP_TOOL_UNKNOWN");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_for_the_run_covers_the_tool_as_it_was_defined_and_no_other() {
    let world = World::hostile().await;
    let rules = "  process.exec: allow\n  mcp.call: {'s/count': ask, '*': allow}\n";
    let run = world.run(&manifest(rules)).await;
    run.list("s").await;
    let count = json!({ "server": "s", "tool": "count" });
    let call = run.plan("mcp_call", count.clone()).await;
    let granted = run.receipt(&call, Scope::Run);
    assert_eq!(run.execute_with(&call, &[&granted]).await.end(), "done");
    let again = run.plan("mcp_call", count.clone()).await;
    assert_eq!(run.execute_with(&again, &[&granted]).await.end(), "done");
    let other = json!({ "server": "s", "tool": "count", "arguments": { "a": 1 } });
    let other = run.plan("mcp_call", other).await;
    assert_eq!(run.execute_with(&other, &[&granted]).await.end(), "RECEIPT_ACTION_MISMATCH");

    // Between a plan and its call the server says something else of the tool.
    let planned = run.plan("mcp_call", count.clone()).await;
    assert_eq!(run.call("s", "turn", json!({})).await.end(), "done");
    assert_eq!(run.execute_with(&planned, &[&granted]).await.end(), "MCP_TOOL_CHANGED");
    // From then on it is another tool, which nobody has granted.
    let changed = run.plan("mcp_call", count).await;
    let shown = changed.plan.mcp.clone().unwrap().call.unwrap();
    assert_eq!(shown.description.as_deref(), Some("Reads, and more."));
    assert_eq!(run.execute_with(&changed, &[&granted]).await.end(), "RECEIPT_ACTION_MISMATCH");
    assert_eq!(fs::read_to_string(run.copy().join("count.log")).unwrap(), "x\nx\n");
    let approved = run.approve(&changed);
    assert_eq!(run.execute(&changed, Some(&approved)).await.end(), "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn between_calls_a_server_stands_still() {
    let world = World::hostile().await;
    let run = world.run(&allowed()).await;
    run.list("s").await;
    assert_eq!(run.call("s", "work", json!({})).await.end(), "done");
    let log = run.copy().join("work.log");
    let length = || fs::metadata(&log).map_or(0, |meta| meta.len());
    let (before, plan) = (length(), run.plan("inspect_patch", json!({})).await.result.unwrap());
    assert_eq!(run.sh("sleep 1").await.end(), "exited 0");
    assert_eq!(length(), before);
    assert_eq!(run.plan("inspect_patch", json!({})).await.result.unwrap(), plan);
    // It goes on in the next call, and what it wrote then is seen.
    assert_eq!(run.call("s", "count", json!({})).await.end(), "done");
    let patch = run.plan("inspect_patch", json!({})).await.result.unwrap();
    assert_ne!(patch, plan);
}
