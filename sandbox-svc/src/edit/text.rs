//! Edits of text by lines or by what is found, on the file's own bytes: whatever is not addressed stays byte for
//! byte, with its line endings, byte order mark and last line. It refuses what is not UTF-8 and touches no disk.

use std::ops::Range;

const BOM: &str = "\u{feff}";

/// One change of a text. All of them are about the text as it was before any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TextEdit {
    /// Lines counted from 1; an end before the start inserts before the start.
    Lines { start: u64, end: u64, text: String },
    /// A line break here stands for whatever ends the line there.
    Find { find: String, replace: String, every: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadEdit {
    #[error(
        "it is not UTF-8 text, and a text edit would damage it; replace the whole file or use a command"
    )]
    NotText,
    #[error("it has {lines} lines; lines {start} to {end} are not among them")]
    NoSuchLines { start: u64, end: u64, lines: usize },
    #[error("edit {0}: what is to be found is not there")]
    NotFound(usize),
    #[error("edit {at}: what is to be found is there {times} times; make it longer, or say all")]
    Ambiguous { at: usize, times: usize },
    #[error("two edits are about the same place")]
    Overlap,
    #[error("edit {0}: a text holds a zero byte, or a carriage return that ends no line")]
    Control(usize),
    #[error("it would be larger than {0} bytes")]
    TooLarge(usize),
}

/// How the lines end, for whoever is to write more of them.
pub(crate) fn line_ending(bytes: &[u8]) -> &'static str {
    let all = bytes.iter().filter(|byte| **byte == b'\n').count();
    let both = bytes.windows(2).filter(|pair| *pair == b"\r\n").count();
    match (all, both) {
        (0, _) => "none",
        (_, 0) => "lf",
        (all, both) if all == both => "crlf",
        _ => "mixed",
    }
}

pub(crate) fn has_bom(bytes: &[u8]) -> bool {
    bytes.starts_with(BOM.as_bytes())
}

/// The bytes after all edits.
pub(crate) fn apply(original: &[u8], edits: &[TextEdit], most: usize) -> Result<Vec<u8>, BadEdit> {
    let text = std::str::from_utf8(original).map_err(|_| BadEdit::NotText)?;
    if text.contains('\0') {
        return Err(BadEdit::NotText);
    }
    let body = text.strip_prefix(BOM).unwrap_or(text);
    let mark = &original[..text.len() - body.len()];
    let text = Text { body, lines: lines(body), marked: !mark.is_empty() };
    let mut splices = Vec::new();
    let mut size = original.len();
    for (at, edit) in edits.iter().enumerate() {
        text.splice(at, edit, most, &mut splices)?;
    }
    splices.sort_by_key(|splice| splice.range.start);
    for pair in splices.windows(2) {
        let (one, next) = (&pair[0].range, &pair[1].range);
        if next.start < one.end || next.start == one.start {
            return Err(BadEdit::Overlap);
        }
    }
    for splice in &splices {
        size = (size + splice.text.len()).saturating_sub(splice.range.len());
    }
    if size > most {
        return Err(BadEdit::TooLarge(most));
    }
    let mut out = mark.to_vec();
    let mut done = 0;
    for Splice { range, text } in &splices {
        out.extend_from_slice(&body.as_bytes()[done..range.start]);
        out.extend_from_slice(text.as_bytes());
        done = range.end;
    }
    out.extend_from_slice(&body.as_bytes()[done..]);
    Ok(out)
}

/// Bytes of the body that give way to a text.
struct Splice {
    range: Range<usize>,
    text: String,
}

/// A line without its ending, and where the next begins.
#[derive(Debug, Clone, Copy)]
struct Line {
    start: usize,
    end: usize,
    next: usize,
}

fn lines(body: &str) -> Vec<Line> {
    let mut start = 0;
    let line = |piece: &str| {
        let next = start + piece.len();
        let bare = piece.strip_suffix('\n').unwrap_or(piece);
        let bare =
            if bare.len() < piece.len() { bare.strip_suffix('\r').unwrap_or(bare) } else { bare };
        let line = Line { start, end: start + bare.len(), next };
        start = next;
        line
    };
    body.split_inclusive('\n').map(line).collect()
}

/// After the byte order mark.
struct Text<'a> {
    body: &'a str,
    lines: Vec<Line>,
    marked: bool,
}

impl Text<'_> {
    fn splice(
        &self,
        at: usize,
        edit: &TextEdit,
        most: usize,
        splices: &mut Vec<Splice>,
    ) -> Result<(), BadEdit> {
        match edit {
            TextEdit::Lines { start, end, text } => {
                splices.push(self.by_lines(at, *start, *end, text)?);
            }
            TextEdit::Find { find, replace, every } => {
                let mut size: usize = splices.iter().map(|splice| splice.text.len()).sum();
                let replace = plain(at, replace)?;
                for range in self.found(at, &plain(at, find)?, *every)? {
                    let text = self.replacement(&range, &replace);
                    size += text.len();
                    // Many places times a long text is more than anybody asked for.
                    if size > most {
                        return Err(BadEdit::TooLarge(most));
                    }
                    splices.push(Splice { range, text });
                }
            }
        }
        Ok(())
    }

    fn by_lines(&self, at: usize, start: u64, end: u64, text: &str) -> Result<Splice, BadEdit> {
        let all = self.lines.len();
        let missing = BadEdit::NoSuchLines { start, end, lines: all };
        let (Ok(first), Ok(last)) = (usize::try_from(start), usize::try_from(end)) else {
            return Err(missing);
        };
        if first == 0 || first > all + 1 || last > all || last + 1 < first {
            return Err(missing);
        }
        let text = plain(at, text)?;
        let text = match text.strip_prefix(BOM) {
            Some(rest) if self.marked && first == 1 => rest,
            Some(_) | None => &text,
        };
        let new: Vec<&str> = text.split_inclusive('\n').collect();
        Ok(if last < first {
            self.insert(first - 1, &new)
        } else {
            self.replace(first - 1..last, &new)
        })
    }

    /// Line for line with the ending that was there; the last keeps the last one's, even if that is none.
    fn replace(&self, replaced: Range<usize>, new: &[&str]) -> Splice {
        let old = &self.lines[replaced.clone()];
        let range = self.lines[replaced.start].start..self.lines[replaced.end - 1].next;
        let mut text = String::new();
        for (at, line) in new.iter().enumerate() {
            text.push_str(line.strip_suffix('\n').unwrap_or(line));
            let is_last = at + 1 == new.len();
            let like = if is_last { old.len() - 1 } else { at.min(old.len() - 1) };
            let ending = self.ending(&old[like]);
            match ending {
                // An empty line that does not end is none.
                "" if !is_last || line.trim_end_matches('\n').is_empty() => {
                    text.push_str(self.near(replaced.start));
                }
                ending => text.push_str(ending),
            }
        }
        Splice { range, text }
    }

    /// Before the line at `place`, or after the last.
    fn insert(&self, place: usize, new: &[&str]) -> Splice {
        let near = self.near(place);
        let start = self.lines.get(place).map_or(self.body.len(), |line| line.start);
        let unended =
            self.lines.get(place.wrapping_sub(1)).is_some_and(|line| line.end == line.next);
        let mut text = String::new();
        for (at, line) in new.iter().enumerate() {
            let bare = line.strip_suffix('\n').unwrap_or(line);
            if unended {
                text.push_str(near);
                text.push_str(bare);
                if bare.is_empty() && at + 1 == new.len() {
                    text.push_str(near);
                }
            } else {
                text.push_str(bare);
                // An empty file has no habit: the text's own end counts.
                if bare.len() < line.len() || !self.lines.is_empty() {
                    text.push_str(near);
                }
            }
        }
        Splice { range: start..start, text }
    }

    fn ending(&self, line: &Line) -> &str {
        &self.body[line.end..line.next]
    }

    /// What a line at `place` would end with: as the nearest before it does, else the nearest after.
    fn near(&self, place: usize) -> &str {
        let (before, after) = self.lines.split_at(place.min(self.lines.len()));
        let endings = before.iter().rev().chain(after).map(|line| self.ending(line));
        endings.into_iter().find(|ending| !ending.is_empty()).unwrap_or("\n")
    }

    /// Where the text is found, line breaks of either kind being the same.
    fn found(&self, at: usize, find: &str, every: bool) -> Result<Vec<Range<usize>>, BadEdit> {
        let (plain, places) = without_returns(self.body);
        let place = |index: usize| places.as_ref().map_or(index, |places| places[index]);
        let ranges: Vec<_> = plain
            .match_indices(find)
            .map(|(start, found)| place(start)..place(start + found.len()))
            .collect();
        match ranges.len() {
            0 => Err(BadEdit::NotFound(at)),
            1 => Ok(ranges),
            _ if every => Ok(ranges),
            times => Err(BadEdit::Ambiguous { at, times }),
        }
    }

    /// Each line break as the one that stood at its place, or as those nearby.
    fn replacement(&self, range: &Range<usize>, replace: &str) -> String {
        let place = self.lines.partition_point(|line| line.next <= range.start);
        let within = |line: &&Line| line.end >= range.start && line.next <= range.end;
        let ended: Vec<&str> = self.lines[place..]
            .iter()
            .take_while(|line| line.start < range.end)
            .filter(within)
            .map(|line| self.ending(line))
            .filter(|ending| !ending.is_empty())
            .collect();
        let own = self.lines.get(place).map(|line| self.ending(line));
        let otherwise = own.filter(|own| !own.is_empty()).unwrap_or_else(|| self.near(place));
        let mut text = String::new();
        for (at, piece) in replace.split('\n').enumerate() {
            if let Some(before) = at.checked_sub(1) {
                text.push_str(
                    ended.get(before).or_else(|| ended.last()).copied().unwrap_or(otherwise),
                );
            }
            text.push_str(piece);
        }
        text
    }
}

/// A text of an edit, its lines ended by `\n` alone.
fn plain(at: usize, text: &str) -> Result<String, BadEdit> {
    let plain = text.replace("\r\n", "\n");
    if plain.contains(['\0', '\r']) { Err(BadEdit::Control(at)) } else { Ok(plain) }
}

/// The text with `\n` for `\r\n`, and where each byte of it, and its end, was.
fn without_returns(body: &str) -> (String, Option<Vec<usize>>) {
    if !body.contains("\r\n") {
        return (body.to_owned(), None);
    }
    let (mut plain, mut places) = (String::with_capacity(body.len()), Vec::new());
    let mut start = 0;
    for piece in body.split("\r\n") {
        if start > 0 {
            places.push(start - 2);
            plain.push('\n');
        }
        places.extend(start..start + piece.len());
        plain.push_str(piece);
        start += piece.len() + 2;
    }
    places.push(body.len());
    (plain, Some(places))
}

#[cfg(test)]
mod tests;
