//! The form of manifests and ceilings as JSON Schema, for editors. What only reading can tell (unique ids, tests
//! that hold, paths that can be mounted) is not in it.

use serde_json::{Map, Value, json};

use crate::action::Action;
use crate::rules::{MAX_COUNT, RESERVED};
use crate::server::{MAX_SERVERS, MAX_TOOLS, SERVER_PATTERN, TOOL_PATTERN};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Of a manifest.
pub fn schema() -> Value {
    json!({
        "$schema": DIALECT,
        "title": "Harness task manifest",
        "type": "object",
        "additionalProperties": false,
        "required": ["id", "title", "goal", "acceptance", "allowed_paths", "permissions"],
        "properties": {
            "id": {"$ref": "#/$defs/kebab"},
            "title": {"$ref": "#/$defs/text"},
            "goal": {"$ref": "#/$defs/text"},
            "acceptance": {"$ref": "#/$defs/some_texts"},
            "allowed_paths": described(
                json!({"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/path"}}),
                "What the task may modify: paths, dir/ or patterns, relative to the workspace.",
            ),
            "permissions": {"$ref": "#/$defs/permissions"},
            "hard_deny": {"$ref": "#/$defs/hard_deny"},
            "approvers": {"$ref": "#/$defs/approvers"},
            "tests": {"$ref": "#/$defs/tests"},
            "budget": closed(json!({
                "max_model_tokens": {"$ref": "#/$defs/positive"},
                "max_tool_calls": {"$ref": "#/$defs/positive"},
                "max_steps": {"$ref": "#/$defs/positive"},
                "max_wall_time": {"$ref": "#/$defs/duration"},
            })),
            "delivery": closed(json!({
                "type": {"enum": ["pull_request", "merge", "artifact", "none"]},
            })),
            "execution": execution(),
            "interaction": closed(json!({
                "on_disconnect": {"enum": ["deny", "hold"]},
                "permission_timeout": {"$ref": "#/$defs/duration"},
            })),
            "models": {
                "type": "array",
                "minItems": 1,
                "maxItems": 128,
                "uniqueItems": true,
                "items": {"type": "string", "minLength": 1, "maxLength": 256},
            },
        },
        "$defs": definitions(),
    })
}

/// Of a ceiling.
pub fn ceiling_schema() -> Value {
    json!({
        "$schema": DIALECT,
        "title": "Harness policy ceiling",
        "type": "object",
        "additionalProperties": false,
        "required": ["kind", "id"],
        "properties": {
            "kind": {"const": "ceiling"},
            "id": {"$ref": "#/$defs/kebab"},
            "title": {"$ref": "#/$defs/text"},
            "permissions": {"$ref": "#/$defs/permissions"},
            "hard_deny": {"$ref": "#/$defs/hard_deny"},
            "approvers": {"$ref": "#/$defs/approvers"},
            "tests": {"$ref": "#/$defs/tests"},
            "protected_paths": described(
                json!({"type": "array", "items": {"$ref": "#/$defs/path"}}),
                "Paths that always ask, instead of the built-in list; empty protects nothing.",
            ),
        },
        "$defs": definitions(),
    })
}

fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

/// An object with these members only, none of them required.
fn closed(properties: Value) -> Value {
    let mut closed = json!({"type": "object", "additionalProperties": false});
    closed["properties"] = properties;
    closed
}

fn execution() -> Value {
    let mut execution = closed(json!({
        "backend": {"enum": ["oci", "none"]},
        "mode": {"enum": ["snapshot", "mount"]},
        "image": {"type": "string", "pattern": "^[A-Za-z0-9._/:@-]{1,255}$"},
        "allow_commands": {"$ref": "#/$defs/texts"},
        "checks": {"type": "object", "additionalProperties": {"$ref": "#/$defs/some_texts"}},
        "servers": {
            "type": "object",
            "maxProperties": MAX_SERVERS,
            "propertyNames": {"pattern": SERVER_PATTERN},
            "additionalProperties": {"$ref": "#/$defs/server"},
        },
        "limits": closed(json!({
            "memory": {"$ref": "#/$defs/bytes"},
            "pids": {"$ref": "#/$defs/positive"},
            "cpus": {"$ref": "#/$defs/decimal"},
            "time": {"$ref": "#/$defs/duration"},
            "output": {"$ref": "#/$defs/bytes"},
            "workspace_bytes": {"$ref": "#/$defs/bytes"},
            "workspace_inodes": {"$ref": "#/$defs/positive"},
            "file_bytes": {"$ref": "#/$defs/bytes"},
            "tmp_bytes": {"$ref": "#/$defs/bytes"},
        })),
        "dependencies": {"$ref": "#/$defs/texts"},
    }));
    execution["required"] = json!(["backend"]);
    execution["if"] = json!({"properties": {"backend": {"const": "oci"}}});
    execution["then"] = json!({
        "required": ["image", "allow_commands"],
        "properties": {"allow_commands": {"minItems": 1}},
    });
    execution["else"] = json!({"properties": {"servers": false}});
    execution["dependentSchemas"] =
        json!({"servers": {"properties": {"mode": {"const": "snapshot"}}}});
    execution
}

fn server() -> Value {
    let mut server = closed(json!({
        "command": described(
            json!({"$ref": "#/$defs/some_texts"}),
            "The argv that starts the server; its program is one of allow_commands.",
        ),
        "tools": described(
            json!({
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_TOOLS,
                "uniqueItems": true,
                "items": {"type": "string", "pattern": TOOL_PATTERN},
            }),
            "The tools of the server that are offered.",
        ),
        "timeout": {"$ref": "#/$defs/duration"},
        "output": {"$ref": "#/$defs/bytes"},
    }));
    server["required"] = json!(["command", "tools"]);
    server
}

fn definitions() -> Value {
    let patterns = |value: &str, names: &str| {
        json!({
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"$ref": names},
            "additionalProperties": {"$ref": value},
        })
    };
    let rule = |value: &str, names: &str| json!({"anyOf": [{"$ref": "#/$defs/effect"}, patterns(value, names)]});
    json!({
        "text": {"type": "string", "minLength": 1, "maxLength": 16384, "pattern": "\\S"},
        "texts": {"type": "array", "items": {"$ref": "#/$defs/text"}},
        "some_texts": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/text"}},
        "kebab": {"type": "string", "maxLength": 128, "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
        "path": {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[^/\\\\,][^\\\\,]*$"},
        "pattern": {"type": "string", "minLength": 1, "maxLength": 1024},
        "host_pattern": {
            "type": "string",
            "maxLength": 1024,
            "pattern": "^(\\*|(\\*|(\\*\\.)?[a-z0-9_-]+(\\.[a-z0-9_-]+)*):(\\*|[1-9][0-9]{0,4}))$",
        },
        "positive": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9]+$"}]},
        "bytes": {"anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)?$"},
        ]},
        "decimal": {"anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": "^[0-9]+(\\.[0-9]{1,3})?$"},
        ]},
        "duration": {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"},
        "effect": {"enum": ["allow", "ask", "deny"]},
        "approvers": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": false,
            "properties": {
                "roles": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 16,
                    "uniqueItems": true,
                    "items": {"$ref": "#/$defs/kebab"},
                },
                "not": {"const": "requester"},
                "count": {"type": "integer", "minimum": 1, "maximum": MAX_COUNT},
                "signature": {"type": "boolean"},
            },
        },
        "terms": {"anyOf": [{"$ref": "#/$defs/effect"}, long(false)]},
        "exec_terms": {"anyOf": [{"$ref": "#/$defs/effect"}, long(true)]},
        "rule": rule("#/$defs/terms", "#/$defs/pattern"),
        "exec_rule": rule("#/$defs/exec_terms", "#/$defs/pattern"),
        "network_rule": rule("#/$defs/terms", "#/$defs/host_pattern"),
        "permissions": by_action(|action| match action {
            Some(Action::ProcessExec) => "#/$defs/exec_rule",
            Some(Action::Network) => "#/$defs/network_rule",
            Some(_) | None => "#/$defs/rule",
        }),
        "some_patterns": hard_list("#/$defs/pattern"),
        "some_hosts": hard_list("#/$defs/host_pattern"),
        "hard_deny": by_action(|action| match action {
            Some(Action::Network) => "#/$defs/some_hosts",
            Some(_) | None => "#/$defs/some_patterns",
        }),
        "server": server(),
        "tests": {"type": "array", "maxItems": 1000, "items": test()},
    })
}

fn hard_list(of: &str) -> Value {
    json!({"type": "array", "minItems": 1, "uniqueItems": true, "items": {"$ref": of}})
}

/// The long form of a pattern's value.
fn long(exec: bool) -> Value {
    let mut long = closed(json!({
        "effect": {"$ref": "#/$defs/effect"},
        "id": {"$ref": "#/$defs/kebab"},
        "justification": {"$ref": "#/$defs/text"},
        "approvers": {"$ref": "#/$defs/approvers"},
    }));
    if exec {
        long["properties"]["class"] = json!({"const": "interpreter"});
    }
    long["required"] = json!(["effect"]);
    long["if"] = json!({"required": ["approvers"]});
    long["then"] = json!({"properties": {"effect": {"const": "ask"}}});
    long
}

fn by_action(of: impl Fn(Option<Action>) -> &'static str) -> Value {
    let known = Action::ALL.map(|action| (action.as_str(), of(Some(action))));
    let reserved = RESERVED.map(|name| (name, of(None)));
    let properties: Map<String, Value> = known
        .into_iter()
        .chain(reserved)
        .map(|(name, of)| (name.to_owned(), json!({"$ref": of})))
        .collect();
    closed(Value::Object(properties))
}

fn test() -> Value {
    let actions: Vec<&str> = Action::ALL.into_iter().map(Action::as_str).collect();
    let mut test = closed(json!({
        "action": {"enum": actions},
        "subject": {"$ref": "#/$defs/text"},
        "argv": {"type": "array", "minItems": 1, "items": {"type": "string", "maxLength": 16384}},
        "expect": {"$ref": "#/$defs/effect"},
        "rule": {"$ref": "#/$defs/text"},
    }));
    test["required"] = json!(["action", "expect"]);
    test["dependentSchemas"] = json!({
        "argv": {"properties": {"action": {"const": "process.exec"}, "subject": false}},
    });
    test
}

#[cfg(test)]
mod tests {
    use super::{ceiling_schema, schema};
    use crate::ceiling::CEILING_KEYS;
    use crate::execution::{EXECUTION_KEYS, LIMIT_KEYS};
    use crate::policy_test::TEST_KEYS;
    use crate::rules::{APPROVERS_KEYS, TERMS_KEYS};
    use crate::schema::MANIFEST_KEYS;
    use crate::server::SERVER_KEYS;
    use serde_json::Value;

    fn keys(schema: &Value, pointer: &str) -> Vec<String> {
        let object = schema.pointer(pointer).unwrap()["properties"].as_object().unwrap();
        object.keys().cloned().collect()
    }

    fn sorted(keys: &[&str]) -> Vec<String> {
        let mut keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        keys.sort();
        keys
    }

    #[test]
    fn the_schema_knows_exactly_the_keys_that_are_read() {
        let manifest = schema();
        for (pointer, known) in [
            ("", &MANIFEST_KEYS[..]),
            ("/properties/execution", &EXECUTION_KEYS),
            ("/properties/execution/properties/limits", &LIMIT_KEYS),
            ("/$defs/exec_terms/anyOf/1", &TERMS_KEYS),
            ("/$defs/server", &SERVER_KEYS),
            ("/$defs/approvers", &APPROVERS_KEYS),
            ("/$defs/tests/items", &TEST_KEYS),
        ] {
            assert_eq!(keys(&manifest, pointer), sorted(known), "{pointer}");
        }
        assert_eq!(keys(&ceiling_schema(), ""), sorted(&CEILING_KEYS));
    }
}
