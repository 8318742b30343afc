//! The JSON Schema against files that are read and files that are not. The checker here knows the words that the
//! schema uses and refuses all others.
use manifest::{Ceiling, Manifest, ceiling_schema, schema, starter};
use serde_json::{Map, Value};

use crate::reading::{FULL, SEED};

/// Whether `value` has the form `schema`; `root` holds the definitions.
fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    match schema {
        Value::Bool(anything) => *anything,
        Value::Object(words) => words.iter().all(|(word, of)| holds(root, words, word, of, value)),
        other => panic!("no schema: {other}"),
    }
}

fn holds(root: &Value, words: &Map<String, Value>, word: &str, of: &Value, value: &Value) -> bool {
    let number = || of.as_f64().unwrap();
    let count = |len: Option<usize>| len.map(|len| len as f64);
    let at_least = |len| count(len).is_none_or(|len| len >= number());
    let at_most = |len| count(len).is_none_or(|len| len <= number());
    let array = value.as_array();
    let object = value.as_object();
    let characters = value.as_str().map(|text| text.chars().count());
    let of_member = |name: &str| words.get("properties").and_then(|known| known.get(name));
    match word {
        "$schema" | "$defs" | "title" | "description" | "then" | "else" => true,
        "$ref" => {
            let pointer = of.as_str().unwrap().trim_start_matches('#');
            fits(root, root.pointer(pointer).unwrap(), value)
        }
        "type" => match of.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_u64() || value.is_i64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            other => panic!("unknown type {other}"),
        },
        "enum" => of.as_array().unwrap().contains(value),
        "const" => of == value,
        "anyOf" => of.as_array().unwrap().iter().any(|schema| fits(root, schema, value)),
        "if" if fits(root, of, value) => fits(root, &words["then"], value),
        "if" => words.get("else").is_none_or(|schema| fits(root, schema, value)),
        "maxProperties" => at_most(object.map(Map::len)),
        "required" => object.is_none_or(|object| {
            of.as_array().unwrap().iter().all(|name| object.contains_key(name.as_str().unwrap()))
        }),
        "properties" => object.is_none_or(|object| {
            of.as_object().unwrap().iter().all(|(name, schema)| {
                object.get(name).is_none_or(|value| fits(root, schema, value))
            })
        }),
        "additionalProperties" => object.is_none_or(|object| {
            object.iter().all(|(name, value)| of_member(name).is_some() || fits(root, of, value))
        }),
        "propertyNames" => object.is_none_or(|object| {
            object.keys().all(|name| fits(root, of, &Value::String(name.clone())))
        }),
        "dependentSchemas" => object.is_none_or(|object| {
            of.as_object()
                .unwrap()
                .iter()
                .all(|(name, schema)| !object.contains_key(name) || fits(root, schema, value))
        }),
        "minProperties" => at_least(object.map(Map::len)),
        "items" => array.is_none_or(|items| items.iter().all(|item| fits(root, of, item))),
        "minItems" => at_least(array.map(Vec::len)),
        "maxItems" => at_most(array.map(Vec::len)),
        "uniqueItems" => array.is_none_or(|items| {
            items.iter().enumerate().all(|(index, item)| !items[..index].contains(item))
        }),
        "minLength" => at_least(characters),
        "maxLength" => at_most(characters),
        "pattern" => value
            .as_str()
            .is_none_or(|text| regex::Regex::new(of.as_str().unwrap()).unwrap().is_match(text)),
        "minimum" => value.as_f64().is_none_or(|value| value >= number()),
        "maximum" => value.as_f64().is_none_or(|value| value <= number()),
        "exclusiveMinimum" => value.as_f64().is_none_or(|value| value > number()),
        other => panic!("the checker does not know {other}"),
    }
}

fn document(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn agrees(text: &str, expected: bool) {
    let read = Manifest::parse(text.as_bytes(), "a.yaml").is_ok();
    let fits = fits(&schema(), &schema(), &document(text));
    assert_eq!((read, fits), (expected, expected), "{text}");
}

#[test]
fn what_is_refused_does_not_fit() {
    for members in [
        "colour: red",
        "budget: {max_money: 1}",
        "budget: {max_steps: 0}",
        "budget: {max_wall_time: 10}",
        "delivery: {type: fax}",
        "execution: {mode: snapshot}",
        "execution: {backend: oci}",
        "execution: {backend: oci, image: a, allow_commands: []}",
        "execution: {backend: none, limits: {memory: 1GB}}",
        "execution: {backend: none, servers: {}}",
        "execution: {backend: oci, mode: mount, image: a, allow_commands: [a], servers: {n: {command: [a], tools: [t]}}}",
        "execution: {backend: oci, image: a, allow_commands: [a], servers: {N: {command: [a], tools: [t]}}}",
        "execution: {backend: oci, image: a, allow_commands: [a], servers: {n: {command: [a]}}}",
        "execution: {backend: oci, image: a, allow_commands: [a], servers: {n: {command: [], tools: [t]}}}",
        "execution: {backend: oci, image: a, allow_commands: [a], servers: {n: {command: [a], tools: []}}}",
        "execution: {backend: oci, image: a, allow_commands: [a], servers: {n: {command: [a], tools: [t, t]}}}",
        "execution: {backend: oci, image: a, allow_commands: [a], servers: {n: {command: [a], tools: ['t*']}}}",
        "execution: {backend: oci, image: a, allow_commands: [a], servers: {n: {command: [a], tools: [t], env: {}}}}",
        "interaction: {on_disconnect: stay}",
        "models: []",
        "models: [a, a]",
        "approvers: {}",
        "approvers: {roles: []}",
        "approvers: {not: me}",
        "approvers: {count: 17}",
        "hard_deny: {fs.write: []}",
        "hard_deny: {fs.wrte: [a]}",
        "hard_deny: {network: ['10.0.0.1']}",
        "tests: [{action: fs.read}]",
        "tests: [{action: fs.read, expect: allow, argv: [a]}]",
        "tests: [{action: process.exec, expect: ask, argv: [a], subject: a}]",
    ] {
        agrees(&format!("{SEED}{members}\n"), false);
    }
    for rule in [
        "fs.reed: allow",
        "fs.read: maybe",
        "fs.read: {}",
        "fs.read: {a: {id: x}}",
        "fs.read: {a: {effect: allow, class: interpreter}}",
        "fs.read: {a: {effect: allow, approvers: {count: 1}}}",
        "fs.read: {a: {effect: ask, id: No}}",
        "network: {registry.test: allow}",
        "network: {'**': allow}",
    ] {
        agrees(&SEED.replace("fs.read: allow", rule), false);
    }
    agrees(&SEED.replace("title: Demo\n", ""), false);
    agrees(&SEED.replace("src/**", "/src/**"), false);
}

#[test]
fn what_is_read_fits() {
    agrees(SEED, true);
    agrees(FULL, true);
    agrees(&starter("a"), true);
    for members in [
        "approvers: {roles: [operator], not: requester, count: 2, signature: true}",
        "hard_deny: {fs.write: ['infra/**'], network: ['*.a.test:443', '*']}",
        "tests: [{action: process.exec, argv: [ls, ''], expect: ask}]",
        "budget: {max_steps: '5'}",
        "execution: {backend: oci, image: a, allow_commands: [a], servers: {n-1: {command: [a, b], tools: [a/b.C_d], timeout: 1s, output: 1KiB}}}",
    ] {
        agrees(&format!("{SEED}{members}\n"), true);
    }
    agrees(
        &SEED.replace(
            "fs.read: allow",
            "process.exec: {'sh**': {effect: ask, id: x, class: interpreter, justification: because, approvers: {count: 2}}}\n  git.push: {a: deny}\n  network: {'*:443': ask, '*': deny}",
        ),
        true,
    );
}

#[test]
fn ceilings_have_a_schema_of_their_own() {
    for (text, expected) in [
        ("kind: ceiling\nid: c\n", true),
        ("kind: ceiling\nid: c\nprotected_paths: []\npermissions: {}\n", true),
        ("id: c\n", false),
        ("kind: ceiling\nid: c\ngoal: x\n", false),
        ("kind: ceiling\nid: c\nprotected_paths: [/a]\n", false),
    ] {
        let read = Ceiling::parse(text.as_bytes(), "c.yaml").is_ok();
        let fits = fits(&ceiling_schema(), &ceiling_schema(), &document(text));
        assert_eq!((read, fits), (expected, expected), "{text}");
    }
}
