//! Words, for people, what denies a plan and what has changed since one was made. It judges nothing.

use receipt::{Effect, Layer, Part, Plan, Policy};

use crate::refusal::named;

/// Of what an author or a path may say in a sentence.
const CHARACTERS: usize = 200;

/// Whose rule denies it, and in whose words.
pub(crate) fn denied(plan: &Plan) -> String {
    let mut denying = plan.parts.iter().filter(|part| part.effect == Effect::Deny);
    let Some(first) = denying.next() else { return "the rules deny it".to_owned() };
    named(&[rule(first)], 1 + denying.count())
}

fn rule(part: &Part) -> String {
    let Part { action, subject, layer, rule, justification, .. } = part;
    let subject = subject.as_ref().map(|it| format!(" of {}", short(&it.to_string())));
    let why = justification.as_deref().map(|why| format!(" ({})", short(why)));
    format!(
        "{action}{} is denied by the {}'s rule {}{}",
        subject.unwrap_or_default(),
        layer.as_str(),
        short(rule),
        why.unwrap_or_default()
    )
}

/// On one line.
fn short(text: &str) -> String {
    let mut shown = String::new();
    for (at, character) in text.chars().enumerate() {
        match character {
            _ if at == CHARACTERS => {
                shown.push('…');
                break;
            }
            _ if character.is_control() => shown.extend(character.escape_default()),
            _ => shown.push(character),
        }
    }
    shown
}

/// What differs between the plan that was made and the one that would be made now.
pub(crate) fn changed(before: &[u8], now: &Plan) -> String {
    const STALE: &str = "what was planned is not what would happen now";
    let Ok(before) = Plan::parse(before) else { return STALE.to_owned() };
    let policy = |plan: &Plan, layer| {
        let found = plan.policies.iter().find(|policy| policy.layer == layer);
        found.map(|Policy { digest, .. }| *digest)
    };
    let ceiling = |layer| policy(&before, layer) != policy(now, layer);
    let changes = [
        ("the manifest", before.manifest != now.manifest),
        ("the organisation's ceiling", ceiling(Layer::Organisation)),
        ("the tenant's ceiling", ceiling(Layer::Tenant)),
        ("the image", before.image != now.image),
        ("the program", before.program != now.program),
        ("the limits", before.limits != now.limits),
        ("the private copy", before.snapshot != now.snapshot),
        ("the patch", before.patch != now.patch),
    ];
    let changes: Vec<_> =
        changes.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect();
    match changes.is_empty() {
        true => STALE.to_owned(),
        false => format!("{STALE}; changed since: {}", changes.join(", ")),
    }
}
