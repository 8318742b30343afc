//! Which programs run other programs, and what they would run. It reads argvs and scripts, starts nothing, and
//! ends for any of them.

mod options;
mod programs;
mod readers;
mod wrappers;

use crate::command::{Command, base_name};
use crate::shell::{Split, split};

const MAX_DEPTH: usize = 16;
const MAX_SEGMENTS: usize = 256;

/// What is inside a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Inspection {
    /// The program that makes it one of the class: a shell, an interpreter or a wrapper.
    pub(crate) class: Option<String>,
    /// The argvs inside it.
    pub(crate) segments: Vec<Vec<String>>,
    /// Why some of it cannot be told.
    pub(crate) unparsable: Option<String>,
    /// Why it may run more than is written in its argv, though that was read to the end.
    pub(crate) opaque: Option<String>,
    steps: usize,
}

/// Something that a program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Inner {
    Argv(Vec<String>),
    Script(String),
    /// What it runs is written there and cannot be read.
    Unknown(&'static str),
    /// What it runs is not written as commands.
    Opaque(&'static str),
}

pub(crate) fn inspect(command: &Command) -> Inspection {
    let mut inspection = Inspection::default();
    let arguments = command.argv.get(1..).unwrap_or_default();
    for name in command.names() {
        if let Some(inner) = programs::look(name, arguments) {
            inspection.class.get_or_insert_with(|| name.to_owned());
            for inner in inner {
                inspection.enter(inner, 0);
            }
        }
    }
    inspection
}

/// Whether a wildcard over such a command reaches the class.
pub(crate) fn is_class(argv: &[String]) -> bool {
    inspect(&Command { argv: argv.to_vec(), program: None }).class.is_some()
}

/// Whether it is one of the class only with some options or words.
pub(crate) fn has_options(program: &str) -> bool {
    programs::has_options(base_name(program))
}

impl Inspection {
    fn enter(&mut self, inner: Inner, depth: usize) {
        if depth > MAX_DEPTH {
            self.beyond("it is nested too deeply");
            return;
        }
        match inner {
            Inner::Unknown(why) => self.beyond(why),
            Inner::Opaque(why) => {
                self.opaque.get_or_insert_with(|| why.to_owned());
            }
            Inner::Argv(argv) => self.segment(argv, depth),
            Inner::Script(script) => {
                let Split { commands, unparsable } = split(&script);
                for argv in commands {
                    self.segment(argv, depth);
                }
                if let Some(why) = unparsable {
                    self.beyond(why);
                }
            }
        }
    }

    fn segment(&mut self, argv: Vec<String>, depth: usize) {
        let Some((program, arguments)) = argv.split_first() else { return };
        // Counted with repetitions, so that no nesting of scripts takes long.
        self.steps += 1;
        if self.steps > MAX_SEGMENTS {
            self.beyond("it has too many commands");
            return;
        }
        let inner = programs::look(base_name(program), arguments).unwrap_or_default();
        if !self.segments.contains(&argv) {
            self.segments.push(argv);
        }
        for inner in inner {
            self.enter(inner, depth + 1);
        }
    }

    fn beyond(&mut self, why: &str) {
        self.unparsable.get_or_insert_with(|| why.to_owned());
    }
}

#[cfg(test)]
#[path = "interpreter/tests.rs"]
mod tests;
