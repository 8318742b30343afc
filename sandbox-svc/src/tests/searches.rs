//! Searching, reading many and the diff in pages: bounded, counted, and only of what may be read.

use std::fs;

use serde_json::{Value, json};

use super::run::Run;
use super::world::{World, manifest, open_manifest};

async fn answer(run: &Run<'_>, tool: &str, arguments: Value) -> Value {
    run.plan(tool, arguments).await.result.unwrap()
}

/// `path:line:column` of each match.
fn places(result: &Value) -> Vec<String> {
    let place = |found: &Value| {
        format!("{}:{}:{}", found["path"].as_str().unwrap(), found["line"], found["column"])
    };
    result["matches"].as_array().unwrap().iter().map(place).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_searched_is_skipped_and_counted() {
    let files = [
        ("a.txt", "needle\n"),
        ("deny/x", "needle\n"),
        (".env", "needle\n"),
        ("bin", "needle\0\n"),
        ("ask/y", "needle\n"),
    ];
    let world = World::new(&files).await;
    fs::write(world.workspace().join("big"), format!("needle\n{}", "x".repeat(5 << 20))).unwrap();
    let rules = "  fs.read: {'deny/**': deny, '*': allow}\n";
    let run = world.run(&manifest(rules)).await;
    let result = answer(&run, "search_files", json!({ "query": "needle", "path": "." })).await;
    assert_eq!(places(&result), ["a.txt:1:1", "ask/y:1:1"]);
    assert_eq!(
        result["skipped"],
        json!({ "withheld": 2, "binary": 1, "tooLarge": 1, "changed": 0 })
    );
    for (arguments, reason) in [
        (json!({ "query": "(", "regex": true }), "PATTERN_INVALID"),
        (json!({ "query": "a{100}{100}{100}", "regex": true }), "PATTERN_INVALID"),
        (json!({ "query": "a\\nb", "regex": true }), "PATTERN_INVALID"),
        (json!({ "query": "a", "path": "missing" }), "PATH_NOT_FOUND"),
        (json!({ "query": "a", "path": ".env" }), "PATH_NOT_READABLE"),
        (json!({ "query": "a", "path": "deny/x" }), "PATH_NOT_READABLE"),
    ] {
        assert_eq!(
            run.try_plan("search_files", &arguments).await.unwrap_err(),
            reason,
            "{arguments}"
        );
    }

    // A rule that asks for one of the files asks for the search.
    let asking = world.run(&manifest("  fs.read: {'ask/**': ask, '*': allow}\n")).await;
    let planned = asking.plan("search_files", json!({ "query": "needle" })).await;
    let parts: Vec<_> = planned
        .plan
        .parts
        .iter()
        .map(|part| (part.effect.as_str(), part.subject.as_ref().unwrap().to_string()))
        .collect();
    assert_eq!(parts, [("ask", "1 paths".to_owned()), ("allow", "4 paths".to_owned())]);
    assert_eq!(planned.result, None);
    let told = asking.execute(&planned, Some(&asking.approve(&planned))).await;
    assert_eq!(places(&told.result()), ["a.txt:1:1", "ask/y:1:1", "deny/x:1:1"]);
    let narrow =
        answer(&asking, "search_files", json!({ "query": "needle", "path": "deny" })).await;
    assert_eq!(places(&narrow), ["deny/x:1:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_goes_on_where_its_page_ended() {
    let world = World::new(&[("a", "x1\nx2\r\nX3\n"), ("b/c", "x4\nno\nx5"), ("b-", "x6\n")]).await;
    fs::write(world.workspace().join("bom"), b"\xef\xbb\xbfx7\n").unwrap();
    let run = world.run(&open_manifest()).await;
    let query = |more: Value| {
        let mut query = json!({ "query": "^x[0-9]$", "regex": true, "limit": 2 });
        for (name, value) in more.as_object().unwrap() {
            query[name] = value.clone();
        }
        query
    };
    let (mut all, mut more) = (Vec::new(), json!({}));
    for pages in 1.. {
        let result = answer(&run, "search_files", query(more)).await;
        all.extend(places(&result));
        let last = result["truncated"] == json!(false);
        assert_eq!(result.get("stoppedBy"), (!last).then_some(&json!("limit")));
        if last {
            assert_eq!(pages, 4);
            break;
        }
        more = json!({ "cursor": result["nextCursor"] });
        let other = json!({ "query": "y", "cursor": result["nextCursor"] });
        assert_eq!(run.try_plan("search_files", &other).await.unwrap_err(), "CURSOR_STALE");
    }
    assert_eq!(all, ["a:1:1", "a:2:1", "a:3:1", "b-:1:1", "b/c:1:1", "b/c:3:1", "bom:1:1"]);
    let exact = answer(&run, "search_files", json!({ "query": "X3", "caseSensitive": true })).await;
    assert_eq!(places(&exact), ["a:3:1"]);
    let literal = answer(&run, "search_files", json!({ "query": "^x" })).await;
    assert_eq!(places(&literal), Vec::<String>::new());

    let many = json!({ "queries": [{ "query": "x4" }, { "query": "x", "path": "a" }], "limitPerQuery": 2 });
    let many = answer(&run, "search_many", many).await;
    assert_eq!((&many["kind"], &many["filesSearched"]), (&json!("search-results"), &json!(4)));
    assert_eq!(places(&many["results"][0]), ["b/c:1:1"]);
    assert_eq!(places(&many["results"][1]), ["a:1:1", "a:2:1"]);
    let rest = json!({ "query": "x", "path": "a", "cursor": many["results"][1]["nextCursor"] });
    assert_eq!(places(&answer(&run, "search_files", rest).await), ["a:3:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_slices_come_in_the_order_asked_for_and_one_does_not_spoil_the_rest() {
    let world = World::new(&[("a", "1\n2\n3\n"), ("b", "b\r\n")]).await;
    let run = world.run(&open_manifest()).await;
    fs::write(run.copy().join("long"), "x".repeat(100 * 1024)).unwrap();
    let slices = json!([
        { "path": "b" }, { "path": "missing" }, { "path": "a", "startLine": 2, "endLine": 2 },
        { "path": "a", "startLine": 3 }, { "path": "long" }, { "path": "long" }, { "path": "long" },
    ]);
    let result = answer(&run, "read_files", json!({ "slices": slices })).await;
    let slices = result["slices"].as_array().unwrap();
    let shown: Vec<_> = slices[..4]
        .iter()
        .map(|slice| (slice["path"].as_str().unwrap(), slice["content"].as_str()))
        .collect();
    assert_eq!(
        shown,
        [("b", Some("b\r\n")), ("missing", None), ("a", Some("2\n")), ("a", Some("3\n"))]
    );
    assert_eq!(slices[1]["error"]["reason"], json!("PATH_NOT_FOUND"));
    let lengths: Vec<_> =
        slices[4..].iter().map(|slice| slice["content"].as_str().unwrap().len()).collect();
    assert_eq!(lengths, [100 * 1024, 28 * 1024 - 7, 0]);
    assert_eq!((&slices[5]["lineCut"], &slices[6]["truncated"]), (&json!(true), &json!(true)));
    let facts: Vec<_> = result["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["path"].as_str().unwrap(), file["lineEnding"].as_str().unwrap()))
        .collect();
    assert_eq!(facts, [("a", "lf"), ("b", "crlf"), ("long", "none")]);
    let denied = world.run(&manifest("  fs.read: {'b': deny, '*': allow}\n")).await;
    let call =
        denied.plan("read_files", json!({ "slices": [{ "path": "a" }, { "path": "b" }] })).await;
    assert_eq!(call.plan.effect, receipt::Effect::Deny);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_and_a_diff_come_in_pages_that_belong_together() {
    let world = World::new(&[("a", "a\n"), ("d/b", "b\n"), ("d/c", "c\n")]).await;
    let run = world.run(&open_manifest()).await;
    let first = answer(&run, "list_files", json!({ "limit": 3 })).await;
    let next = json!({ "limit": 3, "cursor": first["nextCursor"] });
    let rest = answer(&run, "list_files", next.clone()).await;
    assert_eq!((&rest["entries"][0]["path"], rest.get("nextCursor")), (&json!("d/c"), None));
    let other = json!({ "path": "d", "cursor": first["nextCursor"] });
    assert_eq!(run.try_plan("list_files", &other).await.unwrap_err(), "CURSOR_STALE");

    let script = "for f in a d/b d/c; do yes $f-line | head -n 12000 > $f; done";
    let told = run.sh(script).await;
    assert_eq!(told.end(), "exited 0", "{}", told.text());
    let (mut diff, mut cursor, mut pages) = (String::new(), None, 0);
    loop {
        let arguments = match &cursor {
            Some(cursor) => json!({ "path": "d", "cursor": cursor }),
            None => json!({ "path": "d" }),
        };
        let page = answer(&run, "workspace_diff", arguments).await;
        assert_eq!(page["kind"], json!("workspace-diff"));
        let text = page["diff"].as_str().unwrap();
        assert!(text.len() <= 64 * 1024 && !text.is_empty());
        diff.push_str(text);
        pages += 1;
        if page["truncated"] == json!(false) {
            break;
        }
        cursor = Some(page["nextCursor"].clone());
    }
    assert!(pages >= 4, "{pages}");
    assert_eq!(diff.matches("\n+d/b-line").count(), 12_000);
    assert_eq!(diff.matches("\n+d/c-line").count(), 12_000);
    assert!(!diff.contains("a-line"));
    assert_eq!(run.sh("echo more >> d/b").await.end(), "exited 0");
    let stale = json!({ "path": "d", "cursor": cursor.unwrap() });
    assert_eq!(run.try_plan("workspace_diff", &stale).await.unwrap_err(), "CURSOR_STALE");
}
