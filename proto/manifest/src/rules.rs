//! Reads `permissions`, `hard_deny` and `approvers`, which a manifest and a ceiling have in common. It decides
//! what may be written, never what it allows.

use std::collections::{BTreeMap, BTreeSet};

use event::Effect;

use crate::action::Action;
use crate::allowed::MAX_PATTERN;
use crate::decision::system;
use crate::fields::{Field, Reader, Table};
use crate::glob::Glob;
use crate::host;
use crate::nearest::nearest;
use crate::place::At;
use crate::policy::{FALLBACK, HardDeny, Pattern, Policy, Rule, Terms};
use crate::requirement::Requirement;
use crate::tree::{Entry, Value};

/// Names that are kept for later: a file may have rules for them, and no tool uses them.
pub(crate) const RESERVED: [&str; 4] =
    ["git.push", "git.branch", "git.diff", "workspace.path_scope"];
pub(crate) const EFFECTS: [(&str, Effect); 3] =
    [("allow", Effect::Allow), ("ask", Effect::Ask), ("deny", Effect::Deny)];
pub(crate) const TERMS_KEYS: [&str; 5] = ["effect", "id", "class", "justification", "approvers"];
pub(crate) const APPROVERS_KEYS: [&str; 4] = ["roles", "not", "count", "signature"];
pub(crate) const MAX_COUNT: u8 = 16;
const MAX_ROLES: usize = 16;
const MAX_ID: usize = 128;
/// What decisions call the rules that no file has.
const TAKEN: [&str; 7] = [
    "default",
    system::PATH,
    system::HOST,
    system::ARGV,
    system::INTERPRETER,
    system::UNPARSABLE,
    system::APPROVERS,
];

/// The members of a file that say who may do what.
pub(crate) fn policy(reader: &mut Reader<'_>, table: &Table<'_>) -> Option<Policy> {
    let rules = match table.get("permissions") {
        Some(field) => permissions(reader, &field),
        None => Some(BTreeMap::new()),
    };
    let hard_deny = match table.get("hard_deny") {
        Some(field) => hard_deny(reader, &field),
        None => Some(BTreeMap::new()),
    };
    let approvers = match table.get("approvers") {
        Some(field) => requirement(reader, &field).map(Some),
        None => Some(None),
    };
    Some(Policy { rules: rules?, hard_deny: hard_deny?, approvers: approvers? })
}

/// The action of a key; nothing for a reserved name, and a fault for any other.
fn action(reader: &mut Reader<'_>, entry: &Entry) -> Option<Action> {
    let found = Action::named(&entry.key);
    if found.is_none() && !RESERVED.contains(&entry.key.as_str()) {
        let known: Vec<_> = Action::ALL.into_iter().map(Action::as_str).chain(RESERVED).collect();
        let advice = match nearest(&entry.key, &known) {
            Some(name) => format!("did you mean {name}?"),
            None => format!("known actions: {}", known.join(", ")),
        };
        reader.fault(entry.place, format!("unknown action {}; {advice}", entry.key));
    }
    found
}

fn permissions(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<BTreeMap<Action, Rule>> {
    let entries = reader.map(&field.path, field.node)?;
    let mut rules = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for entry in entries {
        let name = Field { path: format!("{}.{}", field.path, entry.key), node: &entry.value };
        let rule = rule(reader, &name, Action::named(&entry.key), &mut ids);
        if let (Some(action), Some(rule)) = (action(reader, entry), rule) {
            rules.insert(action, rule);
        }
    }
    Some(rules)
}

fn rule(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    action: Option<Action>,
    ids: &mut BTreeSet<String>,
) -> Option<Rule> {
    let at = At::from(field.node.place);
    let Value::Map(entries) = &field.node.value else {
        return reader.one_of(field, &EFFECTS).map(|effect| Rule::Flat { effect, at });
    };
    let mut patterns = Vec::new();
    for entry in entries {
        let name = Field { path: format!("{}[{}]", field.path, entry.key), node: &entry.value };
        pattern(reader, entry, &name.path, action);
        if let Some(terms) = terms(reader, &name, action, ids) {
            patterns.push(Pattern::new(entry.key.clone(), terms, entry.place.into()));
        }
    }
    if entries.is_empty() {
        reader.fault(
            field.node.place,
            format!("{} has no pattern; write allow, ask or deny, or add patterns", field.path),
        );
        return None;
    }
    Some(Rule::patterns(patterns, at))
}

/// A fault when the key is no pattern for the action.
fn pattern(reader: &mut Reader<'_>, entry: &Entry, name: &str, action: Option<Action>) {
    if let Some(what) = bad_pattern(&entry.key, name, action) {
        reader.fault(entry.place, what);
    }
}

fn bad_pattern(text: &str, name: &str, action: Option<Action>) -> Option<String> {
    let fits = !text.is_empty()
        && text.chars().count() <= MAX_PATTERN
        && !text.chars().any(char::is_control);
    if !fits {
        return Some(format!("{name} is no pattern; use 1 to {MAX_PATTERN} printable characters"));
    }
    if action == Some(Action::Network) && text != FALLBACK {
        return host::check_pattern(text).err().map(|why| format!("{name} is no host:port; {why}"));
    }
    None
}

/// An effect, or a map that has one.
fn terms(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    action: Option<Action>,
    ids: &mut BTreeSet<String>,
) -> Option<Terms> {
    if !matches!(field.node.value, Value::Map(_)) {
        return reader.one_of(field, &EFFECTS).map(Terms::short);
    }
    let table = reader.table(&field.path, field.node, &TERMS_KEYS)?;
    let effect =
        reader.required(&table, "effect").and_then(|field| reader.one_of(&field, &EFFECTS));
    let id = table.get("id").map(|field| rule_id(reader, &field, ids));
    let justification = table.get("justification").map(|field| reader.text(&field));
    let class = table.get("class").map(|field| {
        if action != Some(Action::ProcessExec) {
            let what = format!("{} belongs to rules about process.exec; remove it", field.path);
            reader.fault(field.node.place, what);
        }
        reader.one_of(&field, &[("interpreter", ())])
    });
    let approvers = table.get("approvers").map(|field| {
        if effect.is_some_and(|effect| effect != Effect::Ask) {
            let what = format!("{} belongs to rules that ask; remove it", field.path);
            reader.fault(field.node.place, what);
        }
        requirement(reader, &field)
    });
    Some(Terms {
        effect: effect?,
        id: present(id)?,
        justification: present(justification)?,
        interpreter: present(class)?.is_some(),
        approvers: present(approvers)?,
    })
}

/// Nothing when the value is there and wrong.
fn present<T>(value: Option<Option<T>>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(None) => None,
        Some(value) => Some(value),
    }
}

fn rule_id(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    ids: &mut BTreeSet<String>,
) -> Option<String> {
    let id = kebab(reader, field)?;
    let Field { path, node } = field;
    if TAKEN.contains(&id.as_str()) {
        reader.fault(node.place, format!("{path} is the name of a built-in rule; use another"));
        return None;
    }
    if !ids.insert(id.clone()) {
        reader.fault(node.place, format!("{path} is {id}, which another rule has; use another"));
        return None;
    }
    Some(id)
}

/// Words of a-z and 0-9 joined by single hyphens.
pub(crate) fn kebab(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let text = reader.text(field)?;
    let kebab = text.len() <= MAX_ID
        && text.split('-').all(|word| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        });
    if !kebab {
        let what = "must be words of a-z and 0-9 joined by single hyphens";
        reader.fault(field.node.place, format!("{} {what}", field.path));
        return None;
    }
    Some(text)
}

fn hard_deny(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
) -> Option<BTreeMap<Action, Vec<HardDeny>>> {
    let entries = reader.map(&field.path, field.node)?;
    let mut listed = BTreeMap::new();
    for entry in entries {
        let name = Field { path: format!("{}.{}", field.path, entry.key), node: &entry.value };
        let known = action(reader, entry);
        let patterns = hard_patterns(reader, &name, known);
        if let (Some(action), Some(patterns)) = (known, patterns) {
            listed.insert(action, patterns);
        }
    }
    Some(listed)
}

fn hard_patterns(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    action: Option<Action>,
) -> Option<Vec<HardDeny>> {
    let mut patterns: Vec<HardDeny> = Vec::new();
    for (item, text) in reader.each_text(field, false)? {
        let Some(text) = text else { continue };
        if let Some(what) = bad_pattern(&text, &item.path, action) {
            reader.fault(item.node.place, what);
        }
        if patterns.iter().any(|pattern| pattern.text == text) {
            reader.fault(item.node.place, format!("{} is listed twice; remove one", item.path));
        }
        let glob = Glob::new(&text);
        patterns.push(HardDeny { text, glob, at: item.node.place.into() });
    }
    patterns.sort_by(|one, other| one.text.cmp(&other.text));
    Some(patterns)
}

/// Who answers asks.
pub(crate) fn requirement(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Requirement> {
    let table = reader.table(&field.path, field.node, &APPROVERS_KEYS)?;
    if matches!(&field.node.value, Value::Map(entries) if entries.is_empty()) {
        let what = format!("{} says nothing; name roles, not, count or signature", field.path);
        reader.fault(field.node.place, what);
        return None;
    }
    let roles = table.get("roles").map(|field| roles(reader, &field));
    let not = table.get("not").map(|field| reader.one_of(&field, &[("requester", ())]));
    let count = table.get("count").map(|field| {
        let count = reader.positive(&field)?;
        let count = u8::try_from(count).ok().filter(|count| *count <= MAX_COUNT);
        if count.is_none() {
            let what = format!("{} must be at most {MAX_COUNT}", field.path);
            reader.fault(field.node.place, what);
        }
        count
    });
    let signature = table.get("signature").map(|field| reader.boolean(&field));
    Some(Requirement {
        roles: present(roles)?.unwrap_or_default(),
        not_requester: present(not)?.is_some(),
        count: present(count)?.unwrap_or(1),
        signature: present(signature)?.unwrap_or(false),
    })
}

fn roles(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<BTreeSet<String>> {
    let items = reader.items(field)?;
    if items.is_empty() || items.len() > MAX_ROLES {
        let what = format!("{} must list 1 to {MAX_ROLES} roles", field.path);
        reader.fault(field.node.place, format!("{what}; leave it out for any role"));
        return None;
    }
    let mut roles = BTreeSet::new();
    let mut complete = true;
    for item in &items {
        match kebab(reader, item) {
            Some(role) if roles.insert(role.clone()) => {}
            Some(_) => {
                let what = format!("{} is listed twice; remove one", item.path);
                reader.fault(item.node.place, what);
            }
            None => complete = false,
        }
    }
    complete.then_some(roles)
}
