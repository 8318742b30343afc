//! House rules that text alone shows: the five files of a service, short files that say what they decide, and an
//! errors page that lists exactly the reasons the code can give. It never judges what code does.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const SERVICES: [&str; 5] = ["gateway", "agent-svc", "sandbox-svc", "model-svc", "audit-svc"];

#[test]
fn every_service_has_the_same_five_files() {
    let mut faults = Vec::new();
    for service in SERVICES {
        for file in ["main.rs", "lib.rs", "config.rs", "api.rs", "error.rs"] {
            let path = workspace().join(service).join("src").join(file);
            if !path.is_file() {
                faults.push(format!("{service} lacks {file}"));
            }
        }
        let lines = read(&workspace().join(service).join("src/main.rs")).lines().count();
        if lines > 25 {
            faults.push(format!("{service}: main.rs has {lines} lines, 25 at most"));
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn every_file_says_what_it_decides_and_stays_short() {
    let mut faults = Vec::new();
    for path in sources() {
        let text = read(&path);
        if !text.starts_with("//!") {
            faults.push(format!("{} does not open with what it decides", shown(&path)));
        }
        let lines = text.lines().count();
        if lines > 500 {
            faults.push(format!("{} has {lines} lines: split it by what it decides", shown(&path)));
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn no_test_is_skipped() {
    let marker = concat!("#[", "ignore");
    let found: Vec<String> = sources()
        .iter()
        .filter(|path| read(path).contains(marker))
        .map(|path| shown(path))
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

/// A service that starts no program cannot be made to start git, a hook or a filter. The programs that `harness` starts
/// for a developer's machine are these.
const STARTED_BY_HARNESS: [&str; 2] = ["setpriv", "sh"];
/// The first process of a container starts the command in there.
const STARTED_IN_A_CONTAINER: &str = "sandbox-svc/init/";

#[test]
fn no_service_starts_a_program() {
    let mut faults = Vec::new();
    for path in sources().into_iter().filter(|path| is_product(path)) {
        let (shown, text) = (shown(&path), product(&path));
        let starts = ["process::Command", "posix_spawn", "execve", "execvp", "CommandExt"];
        if shown.starts_with("cli/") {
            let programs = text.split("Command::new(\"").skip(1);
            faults.extend(
                programs
                    .filter_map(|rest| rest.split('"').next())
                    .filter(|program| !STARTED_BY_HARNESS.contains(program))
                    .map(|program| format!("{shown} starts {program}")),
            );
        } else if let Some(how) = starts.into_iter().find(|how| text.contains(how))
            && !shown.starts_with(STARTED_IN_A_CONTAINER)
        {
            faults.push(format!("{shown} has {how}"));
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn the_errors_page_lists_exactly_the_reasons_in_the_code() {
    let page = read(&workspace().join("docs/errors.md"));
    let listed: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(reason, _)| reason.to_owned())
        .collect();
    let given: BTreeSet<String> = sources()
        .iter()
        .filter(|path| is_product(path))
        .flat_map(|path| reasons(&product(path)))
        .collect();
    let missing: Vec<_> = given.difference(&listed).collect();
    let stale: Vec<_> = listed.difference(&given).collect();
    assert_eq!(
        (missing, stale),
        (Vec::new(), Vec::new()),
        "(reasons the page lacks, reasons the code no longer gives)"
    );
}

/// Literals that look like reasons and are none.
const NOT_REASONS: &[&str] = &[
    "HARNESS_",
    "SCMP_",
    "CAP_",
    "NO_COLOR",
    "BEGIN_",
    "RUST_LOG",
    "CARGO_PKG_VERSION",
    "OUT_DIR",
    "OMP_NUM_THREADS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    // Capabilities as an engine names them.
    "DAC_OVERRIDE",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
];

/// Every string literal of the shape `WORD_WORD`: the only literals of that shape are reasons.
fn reasons(text: &str) -> BTreeSet<String> {
    text.split('"')
        .skip(1)
        .step_by(2)
        .filter(|literal| {
            literal.contains('_') && !literal.starts_with('_') && !literal.ends_with('_')
        })
        .filter(|literal| {
            literal.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        })
        .filter(|literal| !NOT_REASONS.iter().any(|prefix| literal.starts_with(prefix)))
        .map(str::to_owned)
        .collect()
}

/// The text without its unit tests, which stand last, and without comments, whose quotes need not pair up.
fn product(path: &Path) -> String {
    let text = read(path);
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| line.replace("'\"'", "' '") + "\n")
        .collect()
}

fn is_product(path: &Path) -> bool {
    let shown = shown(path);
    shown.contains("/src/")
        && !shown.ends_with("tests.rs")
        && !shown.contains("/tests/")
        && !shown.starts_with("tests/")
}

fn sources() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("an entry").path();
            let name =
                path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                walk(&path, found);
            } else if name.ends_with(".rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(workspace(), &mut found);
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{} is not readable: {error}", path.display()))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(workspace()).unwrap_or(path).display().to_string()
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package sits in the workspace")
}
