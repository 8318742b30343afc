//! What a model is told of lines that match: read file by file, each once, with a limit on matches, bytes and time.
//! What is not text, too large or changed meanwhile is skipped and counted.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::time::{Duration, Instant};

use event::Digest;
use grep_matcher::{LineTerminator, Matcher as _};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use serde_json::{Value, json};

use super::{document, text};
use crate::environment::Environment;
use crate::planner::search::{Prepared, Search, files};
use crate::tool::cursor::Place;
use crate::tool::search::Kind;
use crate::tree::scan::Found;
use crate::tree::{Dir, Kind as EntryKind, Node, RelPath};

/// The largest file that is searched.
const FILE_BYTES: u64 = 4 << 20;
/// Read in one call.
const SOURCE_BYTES: u64 = 256 << 20;
const PATIENCE: Duration = Duration::from_secs(8);
const TEXT_CHARACTERS: usize = 500;
/// What of a line stands before its match when the line is cut.
const LEAD_CHARACTERS: usize = 100;
/// Texts of all matches.
const SHOWN_BYTES: usize = 96 * 1024;

/// Why a search ends before its last file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    Limit,
    Size,
    Bytes,
    Time,
    /// The engine gave up on a file.
    Failed,
}

impl Stopped {
    fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Size => "resultSize",
            Self::Bytes => "bytesRead",
            Self::Time => "time",
            Self::Failed => "failed",
        }
    }
}

/// One query on its way through the files.
struct Running<'a> {
    search: &'a Search,
    matches: Vec<Value>,
    /// The last line that was shown or, at its end, the last file that was searched.
    last: Option<Place>,
    stopped: Option<Stopped>,
}

#[derive(Default)]
struct Skipped {
    withheld: u64,
    binary: u64,
    too_large: u64,
    changed: u64,
}

/// Blocks.
pub(super) fn answer(environment: &Environment, prepared: &Prepared) -> Value {
    let Prepared { kind, searches, limit, found } = prepared;
    let mut running: Vec<_> = searches.iter().map(Running::new).collect();
    let mut skipped =
        Skipped { withheld: withheld(environment, found, searches), ..Skipped::default() };
    let (mut read, mut searched) = (0_u64, 0_u64);
    let (began, mut size) = (Instant::now(), 0);
    for (path, wanted) in wanted(found, searches) {
        let wanted: Vec<_> = wanted.into_iter().filter(|at| running[*at].wants(path)).collect();
        if wanted.is_empty() {
            continue;
        }
        let over = match (read >= SOURCE_BYTES, began.elapsed() >= PATIENCE) {
            (true, _) => Some(Stopped::Bytes),
            (_, true) => Some(Stopped::Time),
            (false, false) => None,
        };
        if let Some(over) = over {
            running.iter_mut().for_each(|query| query.stop(over));
            break;
        }
        let bytes = match load(environment, found, path) {
            Ok(bytes) => bytes,
            Err(skip) => {
                skip.count(&mut skipped);
                continue;
            }
        };
        read += bytes.len() as u64;
        searched += 1;
        for at in wanted {
            running[at].look(path, &bytes, *limit, &mut size);
        }
    }
    told(*kind, &running, searched, read, &skipped)
}

/// Each file once, in path order, with the queries that are about it.
fn wanted<'a>(found: &'a Found, searches: &'a [Search]) -> BTreeMap<&'a RelPath, Vec<usize>> {
    let mut wanted: BTreeMap<&RelPath, Vec<usize>> = BTreeMap::new();
    for (at, search) in searches.iter().enumerate() {
        for path in files(found, &search.query.path) {
            wanted.entry(path).or_default().push(at);
        }
    }
    wanted
}

/// Files and directories that are not searched because they may not be read.
fn withheld(environment: &Environment, found: &Found, searches: &[Search]) -> u64 {
    let within = |path: &RelPath| {
        searches.iter().any(|search| {
            let place = &search.query.path;
            path == place || path.is_below(place)
        })
    };
    let left_out = found.not_carried.iter().map(|entry| &entry.path);
    let paths: BTreeSet<_> =
        environment.before.keys().chain(left_out).filter(|path| within(path)).collect();
    paths.len() as u64
}

enum Skip {
    Binary,
    TooLarge,
    Changed,
}

impl Skip {
    fn count(&self, skipped: &mut Skipped) {
        match self {
            Self::Binary => skipped.binary += 1,
            Self::TooLarge => skipped.too_large += 1,
            Self::Changed => skipped.changed += 1,
        }
    }
}

/// The bytes that the inventory knows, or a reason to pass by.
fn load(environment: &Environment, found: &Found, path: &RelPath) -> Result<Vec<u8>, Skip> {
    let Some(Node::File { size, .. }) = found.inventory.get(path) else {
        return Err(Skip::Changed);
    };
    if *size > FILE_BYTES {
        return Err(Skip::TooLarge);
    }
    let copy = Dir::open(&environment.place.copy()).map_err(|_| Skip::Changed)?;
    let (parent, name) = path.split().ok_or(Skip::Changed)?;
    let parent = copy.descend(&parent).map_err(|_| Skip::Changed)?;
    let seen = parent.look(name).ok().flatten().filter(|seen| seen.kind == EntryKind::File);
    let file = parent.open_file(name, &seen.ok_or(Skip::Changed)?).map_err(|_| Skip::Changed)?;
    let mut bytes = Vec::new();
    file.take(size.saturating_add(1)).read_to_end(&mut bytes).map_err(|_| Skip::Changed)?;
    match bytes.len() as u64 == *size {
        false => Err(Skip::Changed),
        true if bytes.contains(&0) => Err(Skip::Binary),
        true => Ok(bytes),
    }
}

impl<'a> Running<'a> {
    fn new(search: &'a Search) -> Self {
        Self { search, matches: Vec::new(), last: search.query.after.clone(), stopped: None }
    }

    /// Whether it has not ended, and did not pass the file on an earlier page.
    fn wants(&self, path: &RelPath) -> bool {
        let passed = self.search.query.after.as_ref();
        self.stopped.is_none() && passed.is_none_or(|after| *path >= after.path)
    }

    fn stop(&mut self, why: Stopped) {
        self.stopped = self.stopped.or(Some(why));
    }

    fn look(&mut self, path: &RelPath, bytes: &[u8], limit: usize, size: &mut usize) {
        let after = self.search.query.after.as_ref().filter(|after| after.path == *path);
        let after = after.map_or(0, |after| after.number);
        let digest = Digest::of(bytes);
        let marked = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut searcher = SearcherBuilder::new()
            .line_number(true)
            .line_terminator(LineTerminator::crlf())
            .bom_sniffing(false)
            .binary_detection(BinaryDetection::none())
            .build();
        let mut lines = Lines { running: self, path, digest, after, limit, size };
        let ended = searcher.search_slice(&lines.running.search.matcher, marked, &mut lines);
        if ended.is_err() {
            self.stop(Stopped::Failed);
        }
        if self.stopped.is_none() {
            self.last = Some(Place { path: path.clone(), number: u64::MAX });
        }
    }

    fn to_value(&self) -> Value {
        let query = &self.search.query;
        let mut value = json!({
            "query": query.text,
            "regex": query.regex,
            "caseSensitive": query.case_sensitive,
            "path": text(&query.path),
            "matches": self.matches,
            "truncated": self.stopped.is_some(),
        });
        if let Some(stopped) = self.stopped {
            value["stoppedBy"] = stopped.as_str().into();
            let last =
                self.last.clone().unwrap_or_else(|| Place { path: RelPath::root(), number: 0 });
            value["nextCursor"] = query.binding().encode(&last).into();
        }
        value
    }
}

/// Takes the matching lines of one file.
struct Lines<'r, 'a> {
    running: &'r mut Running<'a>,
    path: &'r RelPath,
    digest: Digest,
    /// Lines up to this one were shown before.
    after: u64,
    limit: usize,
    size: &'r mut usize,
}

impl Sink for Lines<'_, '_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let number = found.line_number().unwrap_or(0);
        if number <= self.after {
            return Ok(true);
        }
        let full = match (self.running.matches.len() >= self.limit, *self.size >= SHOWN_BYTES) {
            (true, _) => Some(Stopped::Limit),
            (_, true) => Some(Stopped::Size),
            (false, false) => None,
        };
        if let Some(full) = full {
            self.running.stop(full);
            return Ok(false);
        }
        let line = found.bytes();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let at = self.running.search.matcher.find(line).ok().flatten();
        let at = at.map_or(0, |at| at.start()).min(line.len());
        let (shown, cut) = excerpt(line, at);
        *self.size += shown.len();
        let mut value = json!({
            "path": text(self.path),
            "line": number,
            "column": String::from_utf8_lossy(&line[..at]).chars().count() + 1,
            "text": shown,
            "digest": self.digest.to_string(),
        });
        if cut {
            value["textCut"] = true.into();
        }
        self.running.matches.push(value);
        self.running.last = Some(Place { path: self.path.clone(), number });
        Ok(true)
    }
}

/// At most so many characters of the line, the match among them.
fn excerpt(line: &[u8], at: usize) -> (String, bool) {
    let before = String::from_utf8_lossy(&line[..at]);
    let lead = before.chars().count();
    let whole = String::from_utf8_lossy(line);
    let from = if whole.chars().nth(TEXT_CHARACTERS).is_some() {
        lead.saturating_sub(LEAD_CHARACTERS)
    } else {
        0
    };
    let shown: String = whole.chars().skip(from).take(TEXT_CHARACTERS).collect();
    let cut = from > 0 || shown.len() < whole.len();
    (shown, cut)
}

fn told(kind: Kind, running: &[Running<'_>], searched: u64, read: u64, skipped: &Skipped) -> Value {
    let Skipped { withheld, binary, too_large, changed } = skipped;
    let counts = json!({
        "filesSearched": searched,
        "bytesSearched": read,
        "skipped": { "withheld": withheld, "binary": binary, "tooLarge": too_large, "changed": changed },
    });
    match (kind, running) {
        (Kind::One, [one]) => {
            let mut value = one.to_value();
            for name in ["filesSearched", "bytesSearched", "skipped"] {
                value[name] = counts[name].clone();
            }
            document("search-result", value)
        }
        (Kind::One | Kind::Many, running) => {
            let mut value = counts;
            value["results"] = running.iter().map(Running::to_value).collect();
            document("search-results", value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TEXT_CHARACTERS, excerpt};

    #[test]
    fn a_long_line_is_cut_around_its_match() {
        assert_eq!(excerpt(b"short", 2), ("short".to_owned(), false));
        let line = format!("{}match{}", "é".repeat(1000), "x".repeat(1000));
        let (shown, cut) = excerpt(line.as_bytes(), 2000);
        assert!(cut && shown.chars().count() == TEXT_CHARACTERS);
        assert_eq!(shown.find("match"), Some(200));
        let (shown, cut) = excerpt(&[0xff; 600], 0);
        assert!(cut && shown.chars().count() == TEXT_CHARACTERS);
    }
}
