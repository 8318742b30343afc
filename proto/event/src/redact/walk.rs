//! Walks a value and a text to the fixpoint of the rules. Text inside serialised JSON is never replaced as text.

use serde_json::{Map, Value};

use super::rules::{self, Hit};
use super::{Finding, Redacted, RedactionFailed, key};
use crate::canon;

/// JSON inside a string inside JSON inside a string: followed this far.
const NESTED: usize = 3;
/// A text whose rules keep finding something after this many rounds is withheld as a whole.
const ROUNDS: usize = 8;

pub(super) fn redact(value: &Value) -> Result<Redacted, RedactionFailed> {
    let mut walk = Walk { findings: Vec::new(), nodes: 0, bytes: 0 };
    let value =
        walk.value(value, &mut String::new(), Place { depth: 0, nested: 0, sensitive: false })?;
    Ok(Redacted { value, findings: walk.findings })
}

pub(super) fn text(text: &str) -> String {
    stable(text, 0).0
}

struct Walk {
    findings: Vec<Finding>,
    nodes: usize,
    bytes: usize,
}

#[derive(Clone, Copy)]
struct Place {
    depth: usize,
    nested: usize,
    /// Beneath a name that announces a credential: everything goes but null and booleans.
    sensitive: bool,
}

impl Walk {
    fn value(
        &mut self,
        value: &Value,
        path: &mut String,
        place: Place,
    ) -> Result<Value, RedactionFailed> {
        self.nodes += 1;
        if self.nodes > canon::MAX_NODES {
            return Err(RedactionFailed::TooManyNodes);
        }
        match value {
            Value::Null | Value::Bool(_) => Ok(value.clone()),
            Value::Number(_) if place.sensitive => Ok(self.withhold(path)),
            Value::Number(_) => Ok(value.clone()),
            Value::String(text) => self.text(text, path, place).map(Value::String),
            Value::Array(items) => self.array(items, path, deeper(place)?),
            Value::Object(map) => self.object(map, path, deeper(place)?),
        }
    }

    fn withhold(&mut self, path: &str) -> Value {
        self.found(path, "key", 1);
        Value::String(rules::placeholder("key"))
    }

    fn text(&mut self, text: &str, path: &str, place: Place) -> Result<String, RedactionFailed> {
        self.take(text)?;
        if place.sensitive && !text.is_empty() {
            if rules::is_placeholder(text) {
                return Ok(text.to_owned());
            }
            self.found(path, "key", 1);
            return Ok(rules::placeholder("key"));
        }
        let (safe, hits) = stable(text, place.nested);
        for Hit { rule, count } in hits {
            self.found(path, rule, count);
        }
        Ok(safe)
    }

    fn array(
        &mut self,
        items: &[Value],
        path: &mut String,
        place: Place,
    ) -> Result<Value, RedactionFailed> {
        let mut out = Vec::with_capacity(items.len());
        let mut announced = false;
        for (index, item) in items.iter().enumerate() {
            let length = path.len();
            path.push_str(&format!("/{index}"));
            // An argv: the value of `--token` is the next element.
            let sensitive = place.sensitive
                || (announced && !item.as_str().is_none_or(|text| text.starts_with('-')));
            let safe = self.value(item, path, Place { sensitive, ..place })?;
            announced = [item, &safe].into_iter().filter_map(Value::as_str).any(announces);
            out.push(safe);
            path.truncate(length);
        }
        Ok(Value::Array(out))
    }

    fn object(
        &mut self,
        map: &Map<String, Value>,
        path: &mut String,
        place: Place,
    ) -> Result<Value, RedactionFailed> {
        let mut out = Map::new();
        let paired = names_its_value(map, place.nested);
        for (name, value) in map {
            self.take(name)?;
            let (safe, hits) = stable(name, NESTED);
            // Judged by both names: a second pass sees the safe one only and must come to the same end.
            let sensitive = place.sensitive
                || (paired && name == "value")
                || key::is_sensitive(name)
                || key::is_sensitive(&safe);
            let safe = unused(&out, map, safe, !hits.is_empty());
            let length = path.len();
            path.push('/');
            path.push_str(&safe.replace('~', "~0").replace('/', "~1"));
            for Hit { rule, count } in hits {
                self.found(path, rule, count);
            }
            let value = self.value(value, path, Place { sensitive, ..place })?;
            path.truncate(length);
            out.insert(safe, value);
        }
        Ok(Value::Object(out))
    }

    fn found(&mut self, path: &str, rule: &'static str, count: u32) {
        self.findings.push(Finding { path: path.to_owned(), rule, count });
    }

    fn take(&mut self, text: &str) -> Result<(), RedactionFailed> {
        self.bytes += text.len();
        if self.bytes > canon::MAX_BYTES { Err(RedactionFailed::TooLarge) } else { Ok(()) }
    }
}

fn deeper(place: Place) -> Result<Place, RedactionFailed> {
    if place.depth < canon::MAX_DEPTH {
        Ok(Place { depth: place.depth + 1, ..place })
    } else {
        Err(RedactionFailed::TooDeep)
    }
}

fn announces(text: &str) -> bool {
    text.starts_with("--") && key::is_sensitive(text)
}

/// `{"name": "Authorization", "value": …}`: a header list's way to say it.
fn names_its_value(map: &Map<String, Value>, nested: usize) -> bool {
    ["name", "key"]
        .iter()
        .filter_map(|member| map.get(*member).and_then(Value::as_str))
        .any(|name| key::is_sensitive(name) || key::is_sensitive(&stable(name, nested).0))
}

/// Two keys may become one placeholder; both members stay.
fn unused(
    out: &Map<String, Value>,
    map: &Map<String, Value>,
    name: String,
    changed: bool,
) -> String {
    if !changed {
        return name;
    }
    let taken = |name: &str| out.contains_key(name) || map.contains_key(name);
    if !taken(&name) {
        return name;
    }
    // A header's placeholder swallows what stands behind it, so a number there would not last.
    let lasts = |name: &String| stable(name, NESTED).0 == *name;
    let numbered = |number: usize| {
        let forms = [format!("{name} {number}"), format!("{number} {name}")];
        forms.into_iter().find(lasts).unwrap_or_else(|| format!("[REDACTED] {number}"))
    };
    (2..).map(numbered).find(|candidate| !taken(candidate)).unwrap_or(name)
}

/// Applies the rules until nothing changes.
fn stable(text: &str, nested: usize) -> (String, Vec<Hit>) {
    let mut safe = text.to_owned();
    let mut hits = Vec::new();
    for _ in 0..ROUNDS {
        let Some((next, mut found)) = once(&safe, nested) else { return (safe, hits) };
        safe = next;
        hits.append(&mut found);
    }
    (rules::placeholder("unstable"), vec![Hit { rule: "unstable", count: 1 }])
}

/// One round: as JSON where the text is JSON, else by the rules; None when nothing is found.
fn once(text: &str, nested: usize) -> Option<(String, Vec<Hit>)> {
    if nested < NESTED
        && text.trim_start().starts_with(['{', '['])
        && let Ok(inner) = canon::parse_untrusted(text.as_bytes())
    {
        return json(&inner, nested + 1);
    }
    rules::apply(text)
}

fn json(inner: &Value, nested: usize) -> Option<(String, Vec<Hit>)> {
    let mut walk = Walk { findings: Vec::new(), nodes: 0, bytes: 0 };
    let whole = || Some((rules::placeholder("unstable"), vec![Hit { rule: "unstable", count: 1 }]));
    // The text was parsed within the same limits, so failing here would be a surprise: then all of it goes.
    let Ok(safe) =
        walk.value(inner, &mut String::new(), Place { depth: 0, nested, sensitive: false })
    else {
        return whole();
    };
    if safe == *inner {
        return None;
    }
    let Ok(bytes) = canon::to_bytes(&safe) else { return whole() };
    let Ok(text) = String::from_utf8(bytes) else { return whole() };
    let hits =
        walk.findings.into_iter().map(|Finding { rule, count, .. }| Hit { rule, count }).collect();
    Some((text, hits))
}
