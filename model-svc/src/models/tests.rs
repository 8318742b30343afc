//! Model files that are refused, and what the good ones mean.
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use transport::Chain;

use super::{Models, Provider};

const SCRIPT: &str = "script:\n  - {content: hello}\n";

fn dir(models: &str) -> tempfile::TempDir {
    crate::use_ring();
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str, mode: u32| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    write("models.toml", models, 0o644);
    write("script.yaml", SCRIPT, 0o644);
    write("bad.yaml", "script: {}\n", 0o644);
    write("key", "sk-canary\n", 0o600);
    write("open-key", "sk-canary\n", 0o644);
    dir
}

fn read(dir: &Path) -> Result<Models, Vec<String>> {
    Models::read(&dir.join("models.toml"))
        .map_err(|faults| faults.iter().map(|fault| Chain(fault).to_string()).collect())
}

fn faults(models: &str) -> Vec<String> {
    let dir = dir(models);
    let prefix = format!("{}/", dir.path().display());
    let mut faults = read(dir.path()).unwrap_err();
    for fault in &mut faults {
        *fault = fault.replace(&prefix, "");
    }
    faults
}

#[test]
fn both_kinds_of_provider_are_read_and_nothing_shows_the_key() {
    let dir = dir(r#"
[[model]]
id = "scripted"
provider = "scripted"
script = "script.yaml"

[[model]]
id = "real"
provider = "openai-compatible"
base_url = "https://api.example.test/v1"
key_file = "key"
upstream_model = "m-1"
timeout = "30s"
max_output_tokens = 100
max_tokens_field = "max_completion_tokens"

[[model]]
id = "local"
provider = "openai-compatible"
base_url = "http://127.0.0.1:8080/v1"
upstream_model = "m-2"
"#);
    let models = read(dir.path()).unwrap();
    assert!(matches!(models.get("scripted"), Some(Provider::Scripted(_))));
    assert!(matches!(models.get("real"), Some(Provider::OpenAi(_))));
    assert!(matches!(models.get("local"), Some(Provider::OpenAi(_))));
    assert!(models.get("other").is_none());
    assert!(!format!("{models:?}").contains("canary"));
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let faults = faults(
        r#"
[[model]]
id = "a"
provider = "scripted"
script = "absent.yaml"

[[model]]
id = "b"
provider = "scripted"
script = "bad.yaml"

[[model]]
id = "c"
provider = "openai-compatible"
base_url = "http://example.test"
upstream_model = "m"

[[model]]
id = "d"
provider = "openai-compatible"
base_url = "https://example.test"
key_file = "open-key"
upstream_model = "m"

[[model]]
id = "e"
provider = "openai-compatible"
base_url = "https://example.test"
upstream_model = "m"
timeout = "2h"

[[model]]
id = "f"
provider = "scripted"
script = "script.yaml"

[[model]]
id = "f"
provider = "scripted"
script = "script.yaml"

[[model]]
id = ""
provider = "scripted"
script = "script.yaml"
"#,
    );
    let expected = [
        "model a: no script: script absent.yaml: cannot be read: ",
        "model b: no script: script bad.yaml: ",
        "model c: no such endpoint can be used: base_url must begin with https://",
        "model d: no key: key file open-key: others may read or write it; chmod it to 0600",
        "model e: timeout must be between",
        "model f: listed twice; remove one",
        "a model has no id",
    ];
    assert_eq!(faults.len(), expected.len(), "{faults:#?}");
    for (fault, expected) in faults.iter().zip(expected) {
        assert!(fault.starts_with(expected), "{fault}");
    }
}

#[test]
fn a_file_of_another_shape_is_refused_without_quoting_it() {
    assert_eq!(faults(""), ["models file: no [[model]]; add one"]);
    for models in [
        "key = \"sk-canary\"",
        "[[model]]\nid = \"a\"\nprovider = \"other\"\nkey = \"sk-canary\"",
        "[[model]]\nid = \"a\"\nprovider = \"scripted\"\nscript = \"s\"\nkey = \"sk-canary\"",
        "[[model]\nsk-canary",
    ] {
        let faults = faults(models);
        assert!(faults[0].starts_with("models file models.toml: "), "{faults:?}");
        assert!(!faults[0].contains("canary"), "{faults:?}");
    }
}
