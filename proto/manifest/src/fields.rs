//! Reads a tree into typed fields and gathers every fault on the way, so that one pass tells everything.

use std::time::Duration;

use crate::fault::{Fault, Faults};
use crate::nearest::nearest;
use crate::tree::{Entry, Node, Place, Value};
use crate::units;

/// How many characters a text may have unless its field says otherwise.
const MAX_TEXT: usize = 16 * 1024;
const MAX_MESSAGE: usize = 500;

/// The file's name and what is wrong so far.
pub(crate) struct Reader<'f> {
    file: &'f str,
    /// What the whole is called in messages.
    whole: &'static str,
    faults: Vec<Fault>,
}

/// A map whose keys are known; `path` is its name in messages, with a dot at the end unless it is empty.
pub(crate) struct Table<'n> {
    place: Place,
    path: String,
    entries: &'n [Entry],
}

/// A present value and its name in messages.
pub(crate) struct Field<'n> {
    pub(crate) path: String,
    pub(crate) node: &'n Node,
}

impl<'n> Table<'n> {
    pub(crate) fn get(&self, key: &str) -> Option<Field<'n>> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(Field { path: format!("{}{key}", self.path), node: &entry.value })
    }
}

impl<'f> Reader<'f> {
    pub(crate) fn new(file: &'f str, whole: &'static str) -> Self {
        Self { file, whole, faults: Vec::new() }
    }

    pub(crate) fn fault(&mut self, place: Place, what: impl Into<String>) {
        let Place { line, column } = place;
        let what = shown(&what.into());
        self.faults.push(Fault { file: self.file.to_owned(), line, column, what });
    }

    /// Nothing is wrong so far.
    pub(crate) fn is_content(&self) -> bool {
        self.faults.is_empty()
    }

    /// The value when nothing is wrong.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, Faults> {
        match value {
            Some(value) if self.faults.is_empty() => Ok(value),
            Some(_) | None => Err(Faults::new(self.faults)),
        }
    }

    /// A map that may hold only these keys.
    pub(crate) fn table<'n>(
        &mut self,
        path: &str,
        node: &'n Node,
        known: &[&str],
    ) -> Option<Table<'n>> {
        let entries = self.map(path, node)?;
        let path = if path.is_empty() { String::new() } else { format!("{path}.") };
        for entry in entries {
            if !known.contains(&entry.key.as_str()) {
                let advice = match nearest(&entry.key, known) {
                    Some(name) => format!("did you mean {name}?"),
                    None => format!("known here: {}", known.join(", ")),
                };
                self.fault(entry.place, format!("unknown key {path}{}; {advice}", entry.key));
            }
        }
        Some(Table { place: node.place, path, entries })
    }

    pub(crate) fn map<'n>(&mut self, path: &str, node: &'n Node) -> Option<&'n [Entry]> {
        match &node.value {
            Value::Map(entries) => Some(entries),
            other => {
                let name = if path.is_empty() { self.whole } else { path };
                self.fault(node.place, format!("{name} must be a map, not {}", other.kind()));
                None
            }
        }
    }

    pub(crate) fn required<'n>(&mut self, table: &Table<'n>, key: &str) -> Option<Field<'n>> {
        let field = table.get(key);
        if field.is_none() {
            self.fault(table.place, format!("{}{key} is missing; add it", table.path));
        }
        field
    }

    /// Text with something in it.
    pub(crate) fn text(&mut self, field: &Field<'_>) -> Option<String> {
        let Field { path, node } = field;
        match &node.value {
            Value::Text(text) if text.trim().is_empty() => {
                self.fault(node.place, format!("{path} is empty; write something"));
                None
            }
            Value::Text(text) if text.chars().count() > MAX_TEXT => {
                self.fault(node.place, format!("{path} is longer than {MAX_TEXT} characters"));
                None
            }
            Value::Text(text) if text.contains('\0') => {
                self.fault(node.place, format!("{path} holds a NUL character; remove it"));
                None
            }
            Value::Text(text) => Some(text.clone()),
            other => {
                let kind = other.kind();
                self.fault(
                    node.place,
                    format!("{path} must be text, not {kind}; quote it if it is meant as text"),
                );
                None
            }
        }
    }

    /// Text that may be empty.
    pub(crate) fn word(&mut self, field: &Field<'_>) -> Option<String> {
        match &field.node.value {
            Value::Text(text) if text.is_empty() => Some(String::new()),
            _ => self.text(field),
        }
    }

    pub(crate) fn boolean(&mut self, field: &Field<'_>) -> Option<bool> {
        let Field { path, node } = field;
        match node.value {
            Value::Bool(value) => Some(value),
            _ => {
                self.fault(node.place, format!("{path} must be true or false"));
                None
            }
        }
    }

    /// The items of a list, each under its own name.
    pub(crate) fn items<'n>(&mut self, field: &Field<'n>) -> Option<Vec<Field<'n>>> {
        let Field { path, node } = field;
        match &node.value {
            Value::List(items) => Some(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, node)| Field { path: format!("{path}[{index}]"), node })
                    .collect(),
            ),
            other => {
                self.fault(node.place, format!("{path} must be a list, not {}", other.kind()));
                None
            }
        }
    }

    /// A list of texts; `None` when any of them is wrong.
    pub(crate) fn texts(&mut self, field: &Field<'_>) -> Option<Vec<String>> {
        let items = self.items(field)?;
        let texts: Vec<_> = items.iter().map(|item| self.text(item)).collect();
        texts.into_iter().collect()
    }

    /// The items of a list with at least one, and the text of each that is one.
    pub(crate) fn each_text<'n>(
        &mut self,
        field: &Field<'n>,
        may_be_empty: bool,
    ) -> Option<Vec<(Field<'n>, Option<String>)>> {
        let items = self.items(field)?;
        if items.is_empty() && !may_be_empty {
            let Field { path, node } = field;
            self.fault(node.place, format!("{path} is empty; list at least one"));
            return None;
        }
        let with_text = |item| {
            let text = self.text(&item);
            (item, text)
        };
        Some(items.into_iter().map(with_text).collect())
    }

    /// A list of texts with at least one.
    pub(crate) fn some_texts(&mut self, field: &Field<'_>) -> Option<Vec<String>> {
        let texts = self.texts(field)?;
        if texts.is_empty() {
            let Field { path, node } = field;
            self.fault(node.place, format!("{path} is empty; list at least one"));
            return None;
        }
        Some(texts)
    }

    pub(crate) fn positive(&mut self, field: &Field<'_>) -> Option<u64> {
        self.amount(field, "a positive whole number", units::whole)
    }

    pub(crate) fn bytes(&mut self, field: &Field<'_>) -> Option<u64> {
        self.amount(field, "a positive size such as 512MiB", units::bytes)
    }

    pub(crate) fn milli(&mut self, field: &Field<'_>) -> Option<u64> {
        self.amount(
            field,
            "a positive number with at most three decimals, such as 1.5",
            units::milli,
        )
    }

    pub(crate) fn duration(&mut self, field: &Field<'_>) -> Option<Duration> {
        let millis = self.amount(field, "a positive time such as 300s", |text| {
            units::duration(text).and_then(|time| u64::try_from(time.as_millis()).ok())
        });
        millis.map(Duration::from_millis)
    }

    /// A positive amount that canonical JSON can carry.
    fn amount(
        &mut self,
        field: &Field<'_>,
        expected: &str,
        read: impl Fn(&str) -> Option<u64>,
    ) -> Option<u64> {
        let Field { path, node } = field;
        let amount = match &node.value {
            Value::Integer(number) => read(&number.to_string()),
            Value::OtherNumber(text) | Value::Text(text) => read(text),
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Map(_) => None,
        };
        let amount = amount.filter(|amount| (1..1 << 53).contains(amount));
        if amount.is_none() {
            self.fault(node.place, format!("{path} must be {expected}"));
        }
        amount
    }

    /// One of a closed set of names.
    pub(crate) fn one_of<T: Copy>(&mut self, field: &Field<'_>, names: &[(&str, T)]) -> Option<T> {
        let text = self.text(field)?;
        let found = names.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let known: Vec<_> = names.iter().map(|(name, _)| *name).collect();
            let Field { path, node } = field;
            self.fault(node.place, format!("{path} must be one of {}", known.join(", ")));
        }
        found.map(|(_, value)| *value)
    }
}

/// A message may quote the file: control characters are written out, and no quote fills the screen.
fn shown(what: &str) -> String {
    let mut shown = String::new();
    for character in what.chars().take(MAX_MESSAGE) {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    if what.chars().nth(MAX_MESSAGE).is_some() {
        shown.push('…');
    }
    shown
}
