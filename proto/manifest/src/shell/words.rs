//! One word of a script: quotes removed, and what is substituted in it taken apart in its turn. It expands
//! nothing.

use super::{Beyond, Parsed, Parser, Until, Word};

impl Parser<'_> {
    pub(super) fn word(&mut self) -> Parsed<Word> {
        let mut word = Word::default();
        let mut brace = false;
        while let Some(character) = self.peek() {
            match character {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' => break,
                '<' | '>' if word.text.is_empty() && self.peek_second() == Some('(') => {
                    self.at += 2;
                    word.dynamic = true;
                    word.text.push_str("<()");
                    self.nested()?;
                }
                '<' | '>' => break,
                '\\' => {
                    self.at += 1;
                    match self.next() {
                        Some('\n') => {}
                        Some(escaped) => {
                            word.quoted = true;
                            word.text.push(escaped);
                        }
                        None => return Err(Beyond("it ends in a backslash")),
                    }
                }
                '\'' => {
                    self.at += 1;
                    word.quoted = true;
                    self.until_quote(&mut word.text)?;
                }
                '"' => {
                    self.at += 1;
                    word.quoted = true;
                    self.double_quoted(&mut word)?;
                }
                '$' => self.dollar(&mut word, false)?,
                '`' => self.backtick(&mut word)?,
                _ => {
                    let many = character == ',' || character == '.' && word.text.ends_with('.');
                    if brace && many {
                        return Err(Beyond("it expands braces"));
                    }
                    brace |= character == '{';
                    // A lone bracket is a program.
                    word.pattern |= matches!(character, '*' | '?')
                        || character == '[' && !word.text.is_empty()
                        || word.text == "[";
                    word.text.push(character);
                    self.at += 1;
                }
            }
        }
        Ok(word)
    }

    fn until_quote(&mut self, text: &mut String) -> Parsed {
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some(character) => text.push(character),
                None => return Err(Beyond("a quote is not closed")),
            }
        }
    }

    fn double_quoted(&mut self, word: &mut Word) -> Parsed {
        loop {
            match self.peek() {
                Some('"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some('\\') => {
                    self.at += 1;
                    match self.next() {
                        Some('\n') => {}
                        Some(escaped @ ('$' | '`' | '"' | '\\')) => word.text.push(escaped),
                        Some(other) => word.text.extend(['\\', other]),
                        None => return Err(Beyond("a quote is not closed")),
                    }
                }
                Some('$') => self.dollar(word, true)?,
                Some('`') => self.backtick(word)?,
                Some(character) => {
                    word.text.push(character);
                    self.at += 1;
                }
                None => return Err(Beyond("a quote is not closed")),
            }
        }
    }

    fn dollar(&mut self, word: &mut Word, within_quotes: bool) -> Parsed {
        self.at += 1;
        word.text.push('$');
        match (self.peek(), self.peek_second()) {
            (Some('('), Some('(')) | (Some('['), _) => return Err(Beyond("it calculates")),
            (Some('('), _) => {
                self.at += 1;
                word.text.push_str("()");
                word.dynamic = true;
                self.nested()?;
            }
            (Some('{'), _) => {
                word.dynamic = true;
                self.parameter(&mut word.text)?;
            }
            (Some('\''), _) if !within_quotes => {
                self.at += 1;
                word.text.pop();
                word.quoted = true;
                let from = word.text.len();
                self.until_quote(&mut word.text)?;
                if word.text[from..].contains('\\') {
                    return Err(Beyond("it has a string with escapes"));
                }
            }
            (Some('"'), _) if !within_quotes => {
                word.text.pop();
            }
            (Some(character), _)
                if character.is_ascii_alphanumeric() || "_@*#?-$!".contains(character) =>
            {
                word.dynamic = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// `${…}` without anything in it that could run.
    fn parameter(&mut self, text: &mut String) -> Parsed {
        let mut open = 0usize;
        while let Some(character) = self.next() {
            text.push(character);
            match character {
                '{' => open += 1,
                '}' if open <= 1 => return Ok(()),
                '}' => open -= 1,
                '`' | '(' | '\'' | '"' | '\\' => {
                    return Err(Beyond("it has an involved expansion"));
                }
                _ => {}
            }
        }
        Err(Beyond("a brace is not closed"))
    }

    fn backtick(&mut self, word: &mut Word) -> Parsed {
        self.at += 1;
        word.dynamic = true;
        word.text.push_str("``");
        let mut script = String::new();
        loop {
            match self.next() {
                Some('`') => break,
                Some('\\') => match self.next() {
                    Some(escaped @ ('`' | '\\' | '$')) => script.push(escaped),
                    Some(other) => script.extend(['\\', other]),
                    None => return Err(Beyond("a backtick is not closed")),
                },
                Some(character) => script.push(character),
                None => return Err(Beyond("a backtick is not closed")),
            }
        }
        Parser::new(&script, self.depth + 1, self.found).list(Until::End)
    }
}
