//! The plan of a child: whom the run wants, and for what. What the child then does is planned call by call.

use manifest::{Action, Profile};
use receipt::{EffectClass, Plan};

use super::Planner;
use super::parts::Parts;
use crate::tool::Tool;
use crate::tool::delegate::Arguments;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Prepared(pub(crate) Profile);

impl Planner<'_> {
    pub(super) fn delegate(&self, tool: Tool, arguments: Arguments) -> (Plan, super::Prepared) {
        let Arguments { profile, task } = arguments;
        let parts = Parts::of([self.decide(Action::Delegate, profile.as_str())]);
        let mut plan = Plan {
            effect_class: EffectClass::Idempotent,
            task: Some(task),
            ..self.pure(tool, Action::Delegate, profile.as_str().into())
        };
        parts.put_into(&mut plan);
        (plan, super::Prepared::Delegate(Prepared(profile)))
    }
}
