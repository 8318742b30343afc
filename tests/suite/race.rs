//! Two people answer one ask at the same moment, a thousand times: one of them settles it, the other is told who did, and
//! the effect happens exactly as often as it was allowed.

use acp::client::CallError;
use acp::{AttachParams, Decision};
use anyhow::{Result, ensure};
use e2e::{Ask, Books, Line, Person, Rig, Spec, Turn, manifest, within};
use harness::token::Role;
use serde_json::json;

const SESSIONS: usize = 10;
const ASKS: usize = 100;
/// Every so many asks the effect is a command in a container; the others list the copy's files.
const COMMANDS: usize = 10;

fn turns() -> Vec<Turn> {
    let call = |index: usize| {
        if index.is_multiple_of(COMMANDS) {
            ("process.exec", json!({"argv": ["true"]}))
        } else {
            ("list_files", json!({}))
        }
    };
    vec![Turn::Calls((0..ASKS).map(call).collect()), Turn::Say("answered")]
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_answers_at_once_one_wins_and_the_other_learns_whose() -> Result<()> {
    let mut rules = manifest("raced").rule("fs.list", json!("ask"));
    rules.budget = json!({"max_tool_calls": ASKS + 1, "max_model_tokens": 1_000_000});
    let rig = Rig::start(Spec::new(rules, turns())).await?;
    let token = rig.colleague("second", &[Role::Operator])?;
    let books = Books::open(&rig)?;
    let (mut allowed, mut commands) = (0, 0);
    for _ in 0..SESSIONS {
        let mut first = Person::arrive(&rig).await?;
        let mut second = Person::arrive_as(&rig, &token).await?;
        let session = first.open("raced", None).await?;
        second.attach(AttachParams::session(session)).await?;
        let prompt = first.prompt(session)?;
        let mut asked_commands = 0;
        for round in 0..ASKS {
            let ask = first.next_ask().await?;
            // Nobody can answer what was not yet shown to them.
            assert_eq!(second.next_ask().await?, ask);
            let won = raced(&first, &second, &ask, round).await?;
            allowed += usize::from(won == Decision::Allow);
            asked_commands += usize::from(won == Decision::Allow && round.is_multiple_of(COMMANDS));
        }
        within("the prompt's answer", prompt).await??;
        let own = books.stream("agent-svc", session).await?;
        assert_eq!(count(&own, "permission.resolved"), ASKS, "each ask is resolved once");
        assert_eq!(count(&own, "tool.result"), ASKS);
        let effects = books.stream("sandbox-svc", session).await?;
        assert_eq!(count(&effects, "sandbox.started"), asked_commands);
        let receipts = count(&books.stream("gateway", session).await?, "receipt.signed");
        let yes = own.iter().filter(|line| line.data["decision"] == "allow").count();
        assert!(receipts >= yes, "{yes} were allowed with {receipts} receipts");
        commands += asked_commands;
    }
    // Were one side to win always, nothing would have been raced.
    assert!((1..SESSIONS * ASKS).contains(&allowed), "{allowed} of {} allowed", SESSIONS * ASKS);
    assert!(commands > 0, "no command ran");
    Ok(())
}

/// Both answer, one yes and one no; returns the decision that won.
async fn raced(first: &Person, second: &Person, ask: &Ask, round: usize) -> Result<Decision> {
    // Who says which is changed in each round, so that neither the order nor the person decides.
    let (one, other) = if round.is_multiple_of(2) {
        (Decision::Allow, Decision::Deny)
    } else {
        (Decision::Deny, Decision::Allow)
    };
    let (ours, theirs) = tokio::join!(first.answer(ask, one), second.answer(ask, other));
    let (won, lost, by) = match (ours, theirs) {
        (Ok(()), Err(lost)) => (one, lost, "operator"),
        (Err(lost), Ok(())) => (other, lost, "second"),
        both => anyhow::bail!("round {round}: {both:?}"),
    };
    let CallError::Refused(failure) = lost else { anyhow::bail!("not a refusal: {lost:?}") };
    ensure!(failure.code.symbol() == "ACP_PERMISSION_RESOLVED", "{failure:?}");
    let expected = match won {
        Decision::Allow => [
            format!("already resolved: allowed by {by}"),
            format!("already resolved: {by} has allowed it, and that is being recorded"),
        ],
        Decision::Deny => {
            let told = format!("already resolved: denied by {by} (operator)");
            [told.clone(), told]
        }
    };
    ensure!(expected.iter().any(|text| text == failure.message()), "round {round}: {failure:?}");
    Ok(won)
}

fn count(lines: &[Line], kind: &str) -> usize {
    lines.iter().filter(|line| line.kind == kind).count()
}
