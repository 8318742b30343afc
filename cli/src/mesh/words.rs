//! What a service that ended said last: its own line for people, or else its last error. Lines of an earlier process
//! never count, and whatever is not an error is never quoted.
use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
    path::Path,
};

use serde::Deserialize;
use transport::Service;

const TAIL: u64 = 64 * 1024;
const LONGEST: usize = 400;

#[derive(Deserialize)]
struct Line {
    level: String,
    fields: Fields,
}

#[derive(Deserialize)]
struct Fields {
    message: String,
    reason: Option<String>,
    error: Option<String>,
}

/// The words of the process whose first byte in the log is at `began`.
pub(crate) fn last(log: &Path, began: u64, service: Service) -> Option<String> {
    let text = tail(log, began).ok()?;
    let complaint = format!("harness-{service}: ");
    let own = text.lines().rev().find(|line| line.starts_with(&complaint)).map(str::to_owned);
    let said = own.or_else(|| text.lines().rev().find_map(error))?;
    Some(said.chars().take(LONGEST).collect())
}

fn error(line: &str) -> Option<String> {
    let Line { level: _, fields: Fields { message, reason, error } } =
        serde_json::from_str(line).ok().filter(|line: &Line| line.level == "ERROR")?;
    Some([Some(message), reason, error].into_iter().flatten().collect::<Vec<_>>().join(": "))
}

fn tail(log: &Path, began: u64) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(began.max(length.saturating_sub(TAIL))))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = r#"{"timestamp":"t","level":"INFO","fields":{"message":"listening","reason":"x"},"target":"t"}"#;
    const ERROR: &str = r#"{"timestamp":"t","level":"ERROR","fields":{"message":"the state is damaged","reason":"STATE_DAMAGED","error":"page 7\u001b[2J"},"target":"t"}"#;

    fn last_of(lines: &[&str], began: usize) -> Option<String> {
        let log = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(log.path(), lines.join("\n")).unwrap();
        let began = lines[..began].iter().map(|line| line.len() + 1).sum::<usize>();
        last(log.path(), u64::try_from(began).unwrap(), Service::AuditSvc)
    }

    #[test]
    fn what_is_no_error_is_never_quoted() {
        assert_eq!(last_of(&[INFO, "{\"level\":\"ERROR\"}", "panicked", INFO], 0), None);
    }

    #[test]
    fn its_own_line_comes_first_then_its_last_error() {
        let said = "harness-audit-svc: no room";
        assert_eq!(last_of(&[said, ERROR, INFO], 0), Some(said.to_owned()));
        assert_eq!(
            last_of(&[ERROR, INFO], 0),
            Some("the state is damaged: STATE_DAMAGED: page 7\u{1b}[2J".to_owned())
        );
    }

    #[test]
    fn an_earlier_process_is_not_heard() {
        assert_eq!(last_of(&["harness-audit-svc: no room", ERROR, INFO], 2), None);
    }
}
