//! Brings an operator's models file and the scripts and keys it names into model-svc's own directory.
//! It checks only what it has to touch; model-svc judges the rest.
use std::{
    collections::BTreeSet,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

use super::{Argument, Error, named};
use crate::file;

/// Names below model-svc's directory.
pub(crate) const FILE: &str = "models.toml";
pub(crate) const DIRS: [&str; 2] = ["scripts", "keys"];

/// A file of model-svc, by its name below its directory.
pub(crate) struct Staged {
    pub(crate) name: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

/// A script or key that a model names.
struct Named {
    model: usize,
    key: &'static str,
    name: PathBuf,
    /// What the operator called it.
    given: PathBuf,
    bytes: Vec<u8>,
}

/// The models of one source: of the operator's file, or of the scripts on the command line.
pub(crate) struct Models {
    /// The operator's file, where there is one.
    given: Option<PathBuf>,
    models: Vec<Table>,
    files: Vec<Named>,
}

impl Models {
    /// The files of model-svc, as they will lie below `home`.
    pub(crate) fn staged(sources: &[Self], home: &Path) -> Vec<Staged> {
        let mut all = Vec::new();
        let mut staged = Vec::new();
        for Self { models, files, given: _ } in sources {
            let mut models = models.clone();
            for Named { model, key, name, bytes, given: _ } in files {
                let place = Value::from(home.join(name).display().to_string());
                models[*model].insert((*key).to_owned(), place);
                staged.push(Staged { name: name.clone(), bytes: bytes.clone() });
            }
            all.extend(models.into_iter().map(Value::from));
        }
        let table = Table::from_iter([("model".to_owned(), Value::from(all))]);
        staged.push(Staged { name: FILE.into(), bytes: table.to_string().into_bytes() });
        staged
    }

    /// What is said about files below `home`, with the names that the operator gave.
    pub(crate) fn in_given_names(&self, home: &Path, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(given) = &self.given {
            text = text.replace(&shown(&home.join(FILE)), &shown(given));
        }
        // The longest first: one name may begin another.
        let mut files: Vec<&Named> = self.files.iter().collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.name.as_os_str().len()));
        for file in files {
            text = text.replace(&shown(&home.join(&file.name)), &shown(&file.given));
        }
        text
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.models.iter().filter_map(|model| model.get("id")?.as_str())
    }
}

/// Reads what was named; every fault that reading finds goes to `faults`.
pub(crate) fn read(
    file: Option<&Path>,
    scripts: &[(String, PathBuf)],
    faults: &mut Vec<Error>,
) -> Vec<Models> {
    let mut next = 0;
    let mut sources = Vec::new();
    if let Some(file) = file {
        match configured(file) {
            Ok(models) => {
                sources.extend(gathered(Some(file.to_owned()), models, &mut next, faults));
            }
            Err(fault) => faults.push(fault),
        }
    }
    let mut played = Vec::new();
    for (name, script) in scripts {
        if let Err(fault) = named(name) {
            faults.push(fault);
        }
        played.push(Table::from_iter([
            ("id".to_owned(), Value::from(name.clone())),
            ("provider".to_owned(), Value::from("scripted")),
            ("script".to_owned(), Value::from(script.display().to_string())),
        ]));
    }
    if !played.is_empty() {
        sources.extend(gathered(None, played, &mut next, faults));
    }
    if file.is_none() && scripts.is_empty() {
        faults.push(Error::Argument(Argument::NoModel));
    }
    let mut seen = BTreeSet::new();
    // Within one file it is model-svc that says so.
    for source in &sources {
        let ids: Vec<&str> = source.ids().collect();
        let twice = ids.iter().filter(|id| seen.contains(**id));
        faults.extend(twice.map(|id| Error::Argument(Argument::Twice("model", (*id).to_owned()))));
        seen.extend(ids);
    }
    sources
}

/// Models with the bytes of every file that they name; `None` where one of them can not be read.
fn gathered(
    given: Option<PathBuf>,
    models: Vec<Table>,
    next: &mut usize,
    faults: &mut Vec<Error>,
) -> Option<Models> {
    let mut files = Vec::new();
    let before = faults.len();
    for (model, table) in models.iter().enumerate() {
        for (key, dir) in ["script", "key_file"].into_iter().zip(DIRS) {
            let Some(Value::String(path)) = table.get(key) else { continue };
            let (path, name) = (PathBuf::from(path), Path::new(dir).join(next.to_string()));
            match contents(&path, key) {
                Ok(bytes) => files.push(Named { model, key, name, given: path, bytes }),
                Err(fault) => faults.push(fault),
            }
        }
        *next += 1;
    }
    (faults.len() == before).then_some(Models { given, models, files })
}

fn contents(path: &Path, key: &str) -> Result<Vec<u8>, Error> {
    if key == "key_file" {
        private(path)?;
    }
    Ok(file::read(path)?)
}

/// A key that others can read is no secret; a private copy of it would only hide that.
fn private(path: &Path) -> Result<(), Error> {
    let meta = std::fs::metadata(path).map_err(file::failed("read", path))?;
    match meta.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => Err(Error::Models {
            file: shown(path),
            fault: "others can read this key; run: chmod 600 it".to_owned(),
        }),
    }
}

/// The models of a file, with every path in it made absolute or relative to where this program runs.
fn configured(path: &Path) -> Result<Vec<Table>, Error> {
    let fault = |fault: &str| Error::Models { file: shown(path), fault: fault.to_owned() };
    let text = file::read_text(path)?;
    let mut table: Table = toml::from_str(&text).map_err(|error| fault(&placed(&text, &error)))?;
    let Some(Value::Array(models)) = table.remove("model") else {
        return Err(fault("it has no [[model]]"));
    };
    if let Some(key) = table.keys().next() {
        return Err(fault(&format!("unknown key '{key}'; expected [[model]] only")));
    }
    let beside = path.parent().unwrap_or_else(|| Path::new(""));
    let mut all = Vec::new();
    for model in models {
        let Value::Table(mut model) = model else {
            return Err(fault("each [[model]] is a table"));
        };
        for key in ["script", "key_file"] {
            if let Some(Value::String(named)) = model.get(key) {
                let absolute = shown(&beside.join(named));
                model.insert(key.to_owned(), Value::from(absolute));
            }
        }
        all.push(model);
    }
    Ok(all)
}

/// On one line, with its place. The library's message quotes nothing of the file.
fn placed(text: &str, error: &toml::de::Error) -> String {
    let what = error.message().lines().collect::<Vec<_>>().join(" ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return what };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{what} at line {line}, column {column}")
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn text(staged: &[Staged], name: &str) -> String {
        let found = staged.iter().find(|file| file.name == Path::new(name)).unwrap();
        String::from_utf8(found.bytes.clone()).unwrap()
    }

    /// What is staged, or what is wrong.
    fn stage(
        file: Option<&Path>,
        scripts: &[(String, PathBuf)],
        home: &Path,
    ) -> Result<Vec<Staged>, Vec<Error>> {
        let mut faults = Vec::new();
        let models = read(file, scripts, &mut faults);
        if faults.is_empty() { Ok(Models::staged(&models, home)) } else { Err(faults) }
    }

    #[test]
    fn named_files_come_along_and_paths_follow_them() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("turns.yaml"), "script: []").unwrap();
        let key = dir.path().join("key");
        fs::write(&key, "k").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let models = dir.path().join("models.toml");
        fs::write(
            &models,
            "[[model]]\nid = \"m\"\nprovider = \"openai-compatible\"\nkey_file = \"key\"\n",
        )
        .unwrap();
        let scripts = [("demo".to_owned(), dir.path().join("turns.yaml"))];
        let staged = stage(Some(&models), &scripts, Path::new("/home")).unwrap();
        assert_eq!(text(&staged, "keys/0"), "k");
        assert_eq!(text(&staged, "scripts/1"), "script: []");
        let written: Table = toml::from_str(&text(&staged, "models.toml")).unwrap();
        let listed = written["model"].as_array().unwrap();
        assert_eq!(listed[0]["key_file"].as_str(), Some("/home/keys/0"));
        assert_eq!(listed[1]["script"].as_str(), Some("/home/scripts/1"));
        assert_eq!(listed[1]["id"].as_str(), Some("demo"));

        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = stage(Some(&models), &scripts, Path::new("/home"));
        assert!(
            matches!(refused.err().as_deref(), Some([Error::Models { .. }])),
            "others can read the key"
        );
    }

    #[test]
    fn what_can_not_be_staged_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let models = dir.path().join("models.toml");
        assert!(matches!(
            stage(None, &[], Path::new("/h")).err().as_deref(),
            Some([Error::Argument(Argument::NoModel)])
        ));
        for wrong in
            ["", "x = 1", "model = 1", "model = [1]", "[[model]]\nid=\"a\"\n[other]\n", "]["]
        {
            fs::write(&models, wrong).unwrap();
            let refused = stage(Some(&models), &[], Path::new("/h"));
            assert!(matches!(refused.err().as_deref(), Some([Error::Models { .. }])), "{wrong}");
        }
        let scripts = [("demo".to_owned(), dir.path().join("absent"))];
        let refused = stage(None, &scripts, Path::new("/h"));
        assert!(matches!(refused.err().as_deref(), Some([Error::File(_)])));
    }

    #[test]
    fn a_fault_of_the_form_has_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let models = dir.path().join("models.toml");
        fs::write(&models, "[[model]]\nid = \"a\"\nkey = é\n").unwrap();
        let told = stage(Some(&models), &[], Path::new("/h")).err().unwrap();
        assert!(told[0].to_string().contains("at line 3, column 7"), "{told:?}");
    }

    #[test]
    fn a_model_that_two_sources_name_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (models, turns) = (dir.path().join("models.toml"), dir.path().join("turns"));
        fs::write(&models, "[[model]]\nid = \"a\"\n").unwrap();
        fs::write(&turns, "script: []").unwrap();
        let told = stage(Some(&models), &[("a".to_owned(), turns)], Path::new("/h")).err().unwrap();
        assert_eq!(told[0].to_string(), "model 'a' is given twice");
    }
}
