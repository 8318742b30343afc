//! Takes a shell script apart into the simple commands it may run. It executes and expands nothing, ends for
//! any text, and says so when a script is beyond it.

mod words;

const MAX_SCRIPT: usize = 64 * 1024;
const MAX_DEPTH: usize = 16;
const MAX_COMMANDS: usize = 256;

/// What was found. With a reason in `unparsable` there may be more than the commands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Split {
    /// The argvs, quotes removed; what only a running shell could know stands as it is written.
    pub(crate) commands: Vec<Vec<String>>,
    pub(crate) unparsable: Option<&'static str>,
}

pub(crate) fn split(script: &str) -> Split {
    if script.len() > MAX_SCRIPT {
        return Split { commands: Vec::new(), unparsable: Some("the script is too long") };
    }
    let mut found = Vec::new();
    let result = Parser::new(script, 0, &mut found).list(Until::End);
    Split { commands: found, unparsable: result.err().map(|Beyond(why)| why) }
}

/// Why the script cannot be taken apart.
struct Beyond(&'static str);

type Parsed<T = ()> = Result<T, Beyond>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    End,
    Parenthesis,
}

#[derive(Default)]
struct Word {
    text: String,
    /// Some of it was in quotes, so it is no reserved word.
    quoted: bool,
    /// A running shell makes something else of it.
    dynamic: bool,
    /// A pattern of files; as a program it could be any.
    pattern: bool,
}

struct Parser<'f> {
    script: Vec<char>,
    at: usize,
    depth: usize,
    found: &'f mut Vec<Vec<String>>,
}

impl<'f> Parser<'f> {
    fn new(script: &str, depth: usize, found: &'f mut Vec<Vec<String>>) -> Self {
        Self { script: script.chars().collect(), at: 0, depth, found }
    }

    fn peek(&self) -> Option<char> {
        self.script.get(self.at).copied()
    }

    fn peek_second(&self) -> Option<char> {
        self.script.get(self.at + 1).copied()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.at += 1;
        Some(character)
    }

    /// Commands up to the end or the closing parenthesis. What was read of a command counts even when the
    /// rest of it is beyond us.
    fn list(&mut self, until: Until) -> Parsed {
        if self.depth > MAX_DEPTH {
            return Err(Beyond("it is nested too deeply"));
        }
        loop {
            let mut words = Vec::new();
            let ended = self.command(&mut words, until);
            let named = self.simple(&words);
            let ended = ended?;
            named?;
            if ended {
                return Ok(());
            }
        }
    }

    /// The words of one command; true when the list ends with it.
    fn command(&mut self, words: &mut Vec<Word>, until: Until) -> Parsed<bool> {
        loop {
            match (self.peek(), self.peek_second()) {
                (None, _) if until == Until::End => return Ok(true),
                (None, _) => return Err(Beyond("a parenthesis is not closed")),
                (Some(' ' | '\t'), _) => self.at += 1,
                (Some('\\'), Some('\n')) => self.at += 2,
                (Some('#'), _) => {
                    while self.peek().is_some_and(|character| character != '\n') {
                        self.at += 1;
                    }
                }
                (Some(';'), Some(';' | '&')) => return Err(Beyond("it has a case")),
                (Some('&'), Some('>')) => self.redirect()?,
                (Some('\n' | ';' | '&' | '|'), _) => {
                    self.at += 1;
                    return Ok(false);
                }
                (Some('('), Some('(')) => return Err(Beyond("it calculates")),
                (Some('('), _) if words.iter().all(is_opening) => {
                    self.at += 1;
                    self.nested()?;
                }
                (Some('('), _) => return Err(Beyond("it has a function or a pattern")),
                (Some(')'), _) if until == Until::Parenthesis => {
                    self.at += 1;
                    return Ok(true);
                }
                (Some(')'), _) => return Err(Beyond("a parenthesis is not opened")),
                (Some('<' | '>'), Some('(')) => words.push(self.word()?),
                (Some('<' | '>'), _) => self.redirect()?,
                (Some(_), _) => {
                    let word = self.word()?;
                    let number =
                        !word.text.is_empty() && word.text.bytes().all(|b| b.is_ascii_digit());
                    let redirects = number && matches!(self.peek(), Some('<' | '>'));
                    if !redirects {
                        words.push(word);
                    }
                }
            }
        }
    }

    /// The operator and its target; the target is no argument.
    fn redirect(&mut self) -> Parsed {
        let mut operator = String::new();
        while let Some(character @ ('<' | '>' | '&' | '|')) = self.peek() {
            if matches!(character, '<' | '>')
                && self.peek_second() == Some('(')
                && !operator.is_empty()
            {
                break;
            }
            operator.push(character);
            self.at += 1;
        }
        if operator.starts_with("<<") && operator != "<<<" {
            return Err(Beyond("it has a here-document"));
        }
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.at += 1;
        }
        self.word().map(drop)
    }

    fn nested(&mut self) -> Parsed {
        self.depth += 1;
        let result = self.list(Until::Parenthesis);
        self.depth -= 1;
        result
    }

    /// Keeps the command without its reserved words and assignments.
    fn simple(&mut self, words: &[Word]) -> Parsed {
        let mut rest = words;
        while let Some((first, others)) = rest.split_first() {
            let reserved = if first.quoted { "" } else { first.text.as_str() };
            match reserved {
                _ if is_opening(first) => {}
                "fi" | "done" | "}" | "esac" => {}
                // Only its words; what is done with them are commands of their own.
                "for" | "select" => return Ok(()),
                "case" | "function" | "coproc" | "[[" => return Err(Beyond("it is a program")),
                _ if is_assignment(&first.text) && !first.text.starts_with('=') => {}
                _ => break,
            }
            rest = others;
        }
        let Some(program) = rest.first() else { return Ok(()) };
        if self.found.len() >= MAX_COMMANDS {
            return Err(Beyond("it has too many commands"));
        }
        if program.dynamic || program.pattern {
            return Err(Beyond("which program it starts is computed"));
        }
        self.found.push(rest.iter().map(|word| word.text.clone()).collect());
        Ok(())
    }
}

/// What may stand before a command.
fn is_opening(word: &Word) -> bool {
    const OPENING: [&str; 8] = ["if", "then", "else", "elif", "while", "until", "do", "{"];
    !word.quoted && (OPENING.contains(&word.text.as_str()) || word.text == "!")
}

/// `NAME=…`.
pub(crate) fn is_assignment(text: &str) -> bool {
    let Some((name, _)) = text.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
#[path = "shell/tests.rs"]
mod tests;
