//! The examples that a policy file gives of itself: read with it, run when it is loaded, and a fault of the
//! file when one does not hold.

use event::Effect;

use crate::action::Action;
use crate::command::Command;
use crate::decision::Decision;
use crate::evaluate::Evaluator;
use crate::fields::{Field, Reader};
use crate::place::At;
use crate::rules::EFFECTS;
use crate::subject::exec_subject;
use crate::tree::Place;

pub(crate) const TEST_KEYS: [&str; 5] = ["action", "subject", "argv", "expect", "rule"];
const MAX_TESTS: usize = 1_000;

/// One example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyTest {
    pub action: Action,
    pub on: Example,
    pub expect: Effect,
    /// The rule that decides.
    pub rule: Option<String>,
    pub at: At,
}

/// What an example is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Example {
    /// No subject at all.
    Nothing,
    Subject(String),
    Argv(Vec<String>),
}

impl PolicyTest {
    /// The decision, when it is not the expected one.
    pub(crate) fn fails(&self, evaluator: &Evaluator<'_>) -> Option<Decision> {
        let decision = match &self.on {
            Example::Nothing => evaluator.decide(self.action, None),
            Example::Subject(subject) => evaluator.decide(self.action, Some(subject)),
            Example::Argv(argv) => {
                let command = Command { argv: argv.clone(), program: None };
                Decision::strictest(evaluator.decide_exec(&command))?
            }
        };
        let holds = decision.effect == self.expect
            && self.rule.as_ref().is_none_or(|rule| *rule == decision.rule);
        (!holds).then_some(decision)
    }

    fn shown(&self) -> String {
        let subject = match &self.on {
            Example::Nothing => String::new(),
            Example::Subject(subject) => format!(" on {subject}"),
            Example::Argv(argv) => format!(" on {}", exec_subject(argv)),
        };
        let rule = self.rule.as_ref().map_or_else(String::new, |rule| format!(" by {rule}"));
        format!("{} for {}{subject}{rule}", self.expect.as_str(), self.action)
    }
}

pub(crate) fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Vec<PolicyTest>> {
    let items = reader.items(field)?;
    if items.len() > MAX_TESTS {
        reader.fault(field.node.place, format!("{} lists more than {MAX_TESTS}", field.path));
    }
    let tests: Vec<_> = items.iter().map(|item| test(reader, item)).collect();
    tests.into_iter().collect()
}

fn test(reader: &mut Reader<'_>, item: &Field<'_>) -> Option<PolicyTest> {
    let table = reader.table(&item.path, item.node, &TEST_KEYS)?;
    let actions = Action::ALL.map(|action| (action.as_str(), action));
    let action =
        reader.required(&table, "action").and_then(|field| reader.one_of(&field, &actions));
    let expect =
        reader.required(&table, "expect").and_then(|field| reader.one_of(&field, &EFFECTS));
    let on = match (table.get("subject"), table.get("argv")) {
        (None, None) => Some(Example::Nothing),
        (Some(field), None) => reader.text(&field).map(Example::Subject),
        (subject, Some(field)) => {
            let misplaced =
                subject.is_some() || action.is_some_and(|action| action != Action::ProcessExec);
            if misplaced {
                let what = "is for process.exec, and instead of a subject";
                reader.fault(field.node.place, format!("{} {what}", field.path));
            }
            argv(reader, &field).map(Example::Argv)
        }
    };
    let rule = match table.get("rule") {
        Some(field) => reader.text(&field).map(Some),
        None => Some(None),
    };
    let at = item.node.place.into();
    Some(PolicyTest { action: action?, on: on?, expect: expect?, rule: rule?, at })
}

/// Arguments may be empty, the program may not.
fn argv(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Vec<String>> {
    let items = reader.items(field)?;
    let words: Vec<_> = items.iter().map(|item| reader.word(item)).collect();
    let argv: Vec<String> = words.into_iter().collect::<Option<_>>()?;
    if argv.first().is_none_or(String::is_empty) {
        reader.fault(field.node.place, format!("{} names no program; add it", field.path));
        return None;
    }
    Some(argv)
}

/// A fault for each example that does not hold.
pub(crate) fn run(reader: &mut Reader<'_>, tests: &[PolicyTest], evaluator: &Evaluator<'_>) {
    for (index, test) in tests.iter().enumerate() {
        if let Some(Decision { effect, rule, .. }) = test.fails(evaluator) {
            let At { line, column } = test.at;
            let shown = test.shown();
            reader.fault(
                Place { line, column },
                format!("tests[{index}] expects {shown}; it is {} by {rule}", effect.as_str()),
            );
        }
    }
}
