//! The one evaluator: a pure function from action and subject to a decision that names its rule, over whatever
//! files are in force and the built-in rules. An error of any kind is a deny.

use event::{Digest, Effect};

use crate::action::Action;
use crate::ballot::{Ballot, Side, UNNAMED};
use crate::command::{Command, parse_exec_subject};
use crate::decision::{Decision, Layer, system};
use crate::host::HostPort;
use crate::interpreter::{self, Inspection};
use crate::path::WorkPath;
use crate::protected::{Protected, is_git_directory};
use crate::schema::Manifest;
use crate::subject::exec_subject;

/// What is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    File,
    Directory {
        /// Something in it may be modified by the task, so it may be made or removed along with that.
        along: bool,
    },
    /// A directory with whatever is in it or will be: nobody is asked again about each path.
    Tree,
}

/// The files in force.
pub(crate) struct Evaluator<'p> {
    pub(crate) sides: Vec<Side<'p>>,
    /// Absent where a ceiling is judged alone.
    pub(crate) manifest: Option<&'p Manifest>,
    pub(crate) protected: &'p Protected,
    pub(crate) digest: Digest,
}

impl Evaluator<'_> {
    pub(crate) fn decide(&self, action: Action, subject: Option<&str>) -> Decision {
        let Some(text) = subject else {
            let mut ballot = Ballot::new(action, None, &self.sides);
            ballot.rules(None);
            return self.settle(ballot, action, None);
        };
        match action {
            Action::FsWrite => self.decide_write(text, Target::File),
            Action::FsRead | Action::FsList => match WorkPath::parse(text) {
                Ok(path) => {
                    let subject = path.subject(path.is_directory());
                    self.plain(action, path.as_str(), &subject)
                }
                Err(error) => self.refused(action, text, system::PATH, error.to_string()),
            },
            Action::ProcessExec => match parse_exec_subject(text) {
                Some(argv) => {
                    let command = Command { argv, program: None };
                    let decided = Decision::strictest(self.decide_exec(&command));
                    decided.unwrap_or_else(|| self.no_argv(text))
                }
                None => self.no_argv(text),
            },
            Action::Network => match HostPort::parse(text) {
                Ok(host) => {
                    let subject = host.to_string();
                    self.plain(action, &subject, &subject)
                }
                Err(error) => self.refused(action, text, system::HOST, error.to_string()),
            },
            Action::PatchImport | Action::McpCall | Action::Delegate => {
                self.plain(action, text, text)
            }
        }
    }

    /// The whole argv first, then each command inside it that a rule names.
    pub(crate) fn decide_exec(&self, command: &Command) -> Vec<Decision> {
        let action = Action::ProcessExec;
        let whole = exec_subject(&command.argv);
        if command.argv.is_empty() {
            return vec![self.no_argv(&whole)];
        }
        let Inspection { class, segments, unparsable, opaque, .. } = interpreter::inspect(command);
        let mut ballot = Ballot::new(action, Some(&whole), &self.sides);
        ballot.rules(Some(&whole));
        for alias in command.aliases() {
            ballot.alias(&alias);
        }
        if let Some(program) = class {
            let unknown = |why: &str| format!("what {program} runs cannot be told: {why}");
            if ballot.by_wildcard() {
                let reason = format!(
                    "{program} runs other commands; a wildcard allows it only with class: interpreter"
                );
                ballot.system(system::INTERPRETER, Effect::Ask, reason, 0);
                if let Some(why) = unparsable {
                    ballot.system(system::UNPARSABLE, Effect::Ask, unknown(&why), 1);
                }
            } else if let Some(why) = unparsable.or(opaque).filter(|_| ballot.is_unseen()) {
                // What is denied could be in it, so whoever allowed such programs did not allow this.
                ballot.system(system::UNPARSABLE, Effect::Ask, unknown(&why), 0);
            }
        }
        let mut decisions = vec![self.settle(ballot, action, Some(&whole))];
        for argv in segments {
            let subject = exec_subject(&argv);
            let segment = Command { argv, program: None };
            let mut ballot = Ballot::new(action, Some(&subject), &self.sides);
            ballot.named(&subject);
            for alias in segment.aliases() {
                ballot.alias(&alias);
            }
            decisions.extend(ballot.settle(self.digest));
        }
        decisions
    }

    pub(crate) fn decide_write(&self, text: &str, target: Target) -> Decision {
        let action = Action::FsWrite;
        let path = match WorkPath::parse(text) {
            Ok(path) => path,
            Err(error) => return self.refused(action, text, system::PATH, error.to_string()),
        };
        let directory = path.is_directory() || target != Target::File;
        let mut ballot = Ballot::new(action, Some(path.as_str()), &self.sides);
        ballot.rules(Some(&path.subject(directory)));
        let tree = target == Target::Tree;
        if tree {
            ballot.tree(&path.subject(true));
        }
        if is_git_directory(&path) {
            let reason = "nothing is written to .git, however it is spelt".to_owned();
            ballot.system(system::GIT_DIRECTORY, Effect::Deny, reason, 2);
        }
        let along = target == Target::Directory { along: true };
        let modified = match target {
            Target::Tree => {
                let below = format!("{}/{UNNAMED}", path.as_str());
                vec![format!("{below}/{UNNAMED}"), below]
            }
            Target::File | Target::Directory { .. } => vec![path.as_str().to_owned()],
        };
        let may = |manifest: &Manifest| modified.iter().all(|path| manifest.may_modify(path));
        if self.manifest.is_some_and(|manifest| !along && !may(manifest)) {
            // No entry of allowed_paths can hold one either, so the entry would be looked for in vain.
            let reason = if path.as_str().chars().any(char::is_control) {
                "the path holds a control character, and allowed_paths covers none that does"
            } else {
                "allowed_paths does not cover it"
            };
            ballot.system(system::ALLOWED_PATHS, Effect::Deny, reason.to_owned(), 1);
        }
        if self.protected.covers(&path) || tree && self.protected.may_cover_below(&path) {
            let reason = "tools run or obey what is written there".to_owned();
            ballot.system(system::PROTECTED_PATHS, Effect::Ask, reason, 1);
        }
        self.settle(ballot, action, Some(path.as_str()))
    }

    /// The text of a pattern is matched by exactly the patterns that cover all that it covers.
    pub(crate) fn decide_hosts(&self, pattern: &str) -> Decision {
        self.plain(Action::Network, pattern, pattern)
    }

    /// `shown` is the subject's normal form, `matched` what patterns are held against.
    fn plain(&self, action: Action, shown: &str, matched: &str) -> Decision {
        let mut ballot = Ballot::new(action, Some(shown), &self.sides);
        ballot.rules(Some(matched));
        self.settle(ballot, action, Some(shown))
    }

    pub(crate) fn decide_asking(&self, action: Action, subject: &str, rule: &str) -> Decision {
        let mut ballot = Ballot::new(action, Some(subject), &self.sides);
        ballot.rules(Some(subject));
        let reason = "a person has to want it".to_owned();
        ballot.system(rule, Effect::Ask, reason, 1);
        self.settle(ballot, action, Some(subject))
    }

    fn no_argv(&self, text: &str) -> Decision {
        let reason = "it is not the text of an argv".to_owned();
        self.refused(Action::ProcessExec, text, system::ARGV, reason)
    }

    /// A subject that has no normal form.
    fn refused(&self, action: Action, text: &str, rule: &str, reason: String) -> Decision {
        let mut ballot = Ballot::new(action, Some(text), &self.sides);
        ballot.system(rule, Effect::Deny, reason, 1);
        self.settle(ballot, action, Some(text))
    }

    /// A manifest always has a say; a ceiling alone may have none, and then it does not narrow.
    pub(crate) fn settle(
        &self,
        ballot: Ballot<'_>,
        action: Action,
        subject: Option<&str>,
    ) -> Decision {
        let effect = if self.manifest.is_some() { Effect::Deny } else { Effect::Allow };
        ballot.settle(self.digest).unwrap_or_else(|| Decision {
            action,
            subject: subject.map(str::to_owned),
            effect,
            layer: Layer::System,
            rule: "default".to_owned(),
            reason: format!("no rule names {action}"),
            justification: None,
            matching: Vec::new(),
            approvers: None,
            manifest: self.digest,
        })
    }
}
