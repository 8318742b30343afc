//! The TOML file as flag names and texts; it knows no flag.

use std::{collections::BTreeMap, fs, io, path::Path};

use toml::{Table, Value};

/// What each key was set to, and what is wrong with the others.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) values: BTreeMap<String, Vec<String>>,
    pub(super) faults: Vec<String>,
}

pub(super) fn read(path: &Path) -> Settings {
    match parse(path) {
        Ok(table) => settings(path, table),
        Err(error) => Settings { values: BTreeMap::new(), faults: vec![error] },
    }
}

fn parse(path: &Path) -> Result<Table, String> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("--config {shown}: no such file; name an existing one"),
        _ => format!("--config {shown}: cannot be read: {error}"),
    })?;
    text.parse::<Table>().map_err(|error| {
        let (line, column) = place(&text, error.span().map_or(0, |span| span.start));
        format!("{shown}:{line}:{column}: not TOML: {}", error.message())
    })
}

fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn settings(path: &Path, table: Table) -> Settings {
    let mut settings = Settings::default();
    for (key, value) in table {
        let texts = match value {
            Value::Array(items) => items.into_iter().map(scalar).collect(),
            single => scalar(single).map(|text| vec![text]),
        };
        match texts {
            Some(texts) => {
                settings.values.insert(key, texts);
            }
            None => settings.faults.push(format!(
                "{}: {key} must be a text, a number, true, false or a list of these",
                path.display()
            )),
        }
    }
    settings
}

fn scalar(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(yes) => Some(yes.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}
