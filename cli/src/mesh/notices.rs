//! What services log about changed files that they can not use, passed on to whoever runs the mesh: such a file is not in
//! force, and nothing else says so where it was edited. It passes on nothing else, and never floods.
use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{self, Read as _, Seek as _},
    path::PathBuf,
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};
use transport::Service;

use super::Layout;

/// The constant message of every such line.
const BROKEN: &str = "a changed file cannot be used; the last good version stays in force";
const PERIOD: Duration = Duration::from_secs(1);
/// The most that is read of one log at a time.
const CHUNK: u64 = 1024 * 1024;
const LONGEST: usize = 600;
/// No more lines than this are passed on in a window.
const MOST: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Line {
    level: String,
    fields: Map<String, Value>,
}

/// A service's log, read as far as `at`.
#[derive(Debug)]
struct Log {
    service: Service,
    path: PathBuf,
    at: u64,
    readable: bool,
}

#[derive(Debug)]
pub(crate) struct Notices {
    logs: Vec<Log>,
    told: VecDeque<Instant>,
    passed_over: usize,
}

impl Notices {
    /// Lines before `began` are those of earlier processes.
    pub(crate) fn new(layout: &Layout, began: &BTreeMap<Service, u64>) -> Self {
        let log = |(service, at): (&Service, &u64)| Log {
            service: *service,
            path: layout.log(*service),
            at: *at,
            readable: true,
        };
        Self { logs: began.iter().map(log).collect(), told: VecDeque::new(), passed_over: 0 }
    }

    /// The next lines for a person, not escaped. Cancel safe.
    pub(crate) async fn next(&mut self) -> Vec<String> {
        loop {
            sleep(PERIOD).await;
            let said = self.look(Instant::now());
            if !said.is_empty() {
                return said;
            }
        }
    }

    fn look(&mut self, now: Instant) -> Vec<String> {
        let mut found = Vec::new();
        for log in &mut self.logs {
            match log.lines() {
                Ok(lines) => {
                    log.readable = true;
                    found.extend(lines);
                }
                Err(error) if log.readable => {
                    log.readable = false;
                    found.push(format!("the log of {} can not be read: {error}", log.service));
                }
                Err(_) => {}
            }
        }
        self.bounded(found, now)
    }

    fn bounded(&mut self, found: Vec<String>, now: Instant) -> Vec<String> {
        while self.told.front().is_some_and(|at| now.duration_since(*at) >= WINDOW) {
            self.told.pop_front();
        }
        let mut said = Vec::new();
        if self.passed_over > 0 && self.told.is_empty() {
            said.push(format!("{} more such lines are in the services' logs", self.passed_over));
            self.passed_over = 0;
        }
        for line in found {
            if self.told.len() < MOST {
                self.told.push_back(now);
                said.push(line);
            } else {
                self.passed_over += 1;
            }
        }
        said
    }
}

impl Log {
    /// Whole lines only: what is being written is read the next time.
    fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut file = File::open(&self.path)?;
        let length = file.metadata()?.len();
        if length <= self.at {
            // A log that was cut short begins anew.
            self.at = length;
            return Ok(Vec::new());
        }
        file.seek(io::SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        file.take(CHUNK).read_to_end(&mut bytes)?;
        let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            // A line that long is none of these.
            None if u64::try_from(bytes.len()).is_ok_and(|length| length >= CHUNK) => bytes.len(),
            None => 0,
        };
        self.at += u64::try_from(whole).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes[..whole]);
        Ok(text.lines().filter_map(|line| told(self.service, line)).collect())
    }
}

/// "sandbox-svc: a changed file cannot be used; …: file=ceiling error=…"; `None` for every other line.
fn told(service: Service, line: &str) -> Option<String> {
    let Line { level, fields } = serde_json::from_str(line).ok()?;
    let message = fields.get("message").and_then(Value::as_str)?;
    if level != "ERROR" || message != BROKEN {
        return None;
    }
    let fields = fields.iter().filter(|(key, _)| *key != "message");
    let fields: Vec<String> = fields
        .map(|(key, value)| match value.as_str() {
            Some(text) => format!("{key}={text}"),
            None => format!("{key}={value}"),
        })
        .collect();
    let text = format!("{service}: {BROKEN}: {}", fields.join(" "));
    Some(text.chars().take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;

    fn broken(error: &str) -> String {
        format!(
            r#"{{"timestamp":"t","level":"ERROR","fields":{{"message":"{BROKEN}","file":"ceiling","error":"{error}"}},"target":"t"}}"#
        )
    }

    const SAID: &str = "sandbox-svc: a changed file cannot be used; the last good version stays in force: error=top.yaml:3:1: x file=ceiling";

    fn notices(dir: &std::path::Path, before: &str) -> (Notices, File) {
        let layout = Layout::new(dir);
        fs::create_dir(layout.logs()).unwrap();
        let path = layout.log(Service::SandboxSvc);
        fs::write(&path, before).unwrap();
        let began = BTreeMap::from([(Service::SandboxSvc, u64::try_from(before.len()).unwrap())]);
        let log = File::options().append(true).open(path).unwrap();
        (Notices::new(&layout, &began), log)
    }

    #[test]
    fn only_whole_lines_about_changed_files_are_passed_on_and_each_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mut notices, mut log) = notices(dir.path(), &format!("{}\n", broken("earlier")));
        let now = Instant::now();
        assert_eq!(notices.look(now), Vec::<String>::new());
        let line = broken("top.yaml:3:1: x");
        for other in
            [line.replace("ERROR", "INFO"), line.replace(BROKEN, "a prompt"), "panicked".to_owned()]
        {
            writeln!(log, "{other}").unwrap();
        }
        write!(log, "{}", &line[..20]).unwrap();
        assert_eq!(notices.look(now), Vec::<String>::new());
        writeln!(log, "{}", &line[20..]).unwrap();
        assert_eq!(notices.look(now), [SAID]);
        assert_eq!(notices.look(now), Vec::<String>::new());
    }

    #[test]
    fn more_lines_than_a_person_reads_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (mut notices, mut log) = notices(dir.path(), "");
        for _ in 0..MOST + 3 {
            writeln!(log, "{}", broken("x")).unwrap();
        }
        let now = Instant::now();
        assert_eq!(notices.look(now).len(), MOST);
        assert_eq!(notices.look(now), Vec::<String>::new());
        assert_eq!(notices.look(now + WINDOW), ["3 more such lines are in the services' logs"]);
    }
}
