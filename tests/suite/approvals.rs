//! Answers that one person cannot give, and answers that stand for a while: two people with signatures of their own, a
//! veto, an allow for the run that is listed, used and taken back.

use acp::client::CallError;
use acp::{Approval as Sent, AttachParams, Decision, RespondParams};
use anyhow::{Context as _, Result, ensure};
use e2e::{Ask, Books, Line, Person, Rig, Spec, Turn, manifest, within};
use event::Scope;
use event::id::SessionId;
use harness::token::Role;
use receipt::{Approval, ApproverKey, Plan};
use serde_json::{Value, json};
use transport::Service;

const EXEC: &str = "process.exec";

/// A person's key, as they keep it and as the administrator lists it.
struct Signer {
    subject: &'static str,
    key: ApproverKey,
    public: String,
}

impl Signer {
    fn new(subject: &'static str) -> Result<Self> {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        let key = ApproverKey::from_pem(pair.serialize_pem().as_bytes())?;
        Ok(Self { subject, key, public: pair.public_key_pem() })
    }

    fn entry(&self) -> Value {
        json!({"subject": self.subject, "key": self.public, "roles": ["operator"]})
    }

    fn sign(&self, ask: &Ask) -> Result<Sent> {
        let plan: Plan = serde_json::from_value(ask.plan.clone())?;
        let iat = u64::try_from(time::OffsetDateTime::now_utc().unix_timestamp())?;
        let signed = self.key.sign(&Approval {
            plan: ask.digest,
            action: plan.action_digest()?,
            permission: ask.permission,
            session: ask.session,
            run: plan.run,
            call: plan.call,
            scope: Scope::Once,
            subject: self.subject.to_owned(),
            iat,
            exp: iat + 600,
        })?;
        Ok(serde_json::from_value(json!({
            "payload": signed.payload_text(),
            "signature": signed.signature_text(),
            "keyId": signed.key_id(),
        }))?)
    }
}

fn allow(ask: &Ask, approval: Option<Sent>) -> RespondParams {
    RespondParams {
        session_id: ask.session.into(),
        permission_id: ask.permission.into(),
        decision: Decision::Allow,
        note: None,
        plan_digest: Some(ask.digest),
        scope: None,
        approval,
    }
}

fn message(refused: CallError) -> Result<String> {
    let CallError::Refused(failure) = refused else { anyhow::bail!("not a refusal: {refused:?}") };
    Ok(failure.message().to_owned())
}

/// Two operators other than who asked, each with a signature.
struct Pair {
    rig: Rig,
    ann: Signer,
    ben: Signer,
    _keys: tempfile::TempDir,
}

impl Pair {
    async fn start() -> Result<Self> {
        let (ann, ben) = (Signer::new("ann")?, Signer::new("ben")?);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let keys = tempfile::Builder::new().permissions(open).tempdir()?;
        let file = keys.path().join("approvers.yaml");
        std::fs::write(&file, json!({"approvers": [ann.entry(), ben.entry()]}).to_string())?;
        let approvers =
            json!({"roles": ["operator"], "not": "requester", "count": 2, "signature": true});
        let rules = manifest("paired").rule(
            EXEC,
            json!({"true": {"effect": "ask", "id": "two-people", "approvers": approvers}}),
        );
        let turns = vec![Turn::Call(EXEC, json!({"argv": ["true"]})), Turn::Say("done")];
        let path = file.to_str().context("a path of text")?.to_owned();
        let spec = Spec::new(rules, turns).setting(Service::SandboxSvc, "approver-keys", path);
        Ok(Self { rig: Rig::start(spec).await?, ann, ben, _keys: keys })
    }

    async fn person(&self, subject: &str, role: Role) -> Result<Person> {
        Person::arrive_as(&self.rig, &self.rig.colleague(subject, &[role])?).await
    }

    /// The requester, with the ask that they see.
    async fn asked(&self) -> Result<(Person, SessionId, Ask)> {
        let mut requester = Person::arrive(&self.rig).await?;
        let session = requester.open("paired", None).await?;
        requester.prompt(session)?;
        let ask = requester.next_ask().await?;
        Ok((requester, session, ask))
    }
}

/// Attaches, and waits for the ask to be shown.
async fn shown(person: &mut Person, session: SessionId) -> Result<Ask> {
    let open = person.attach(AttachParams::session(session)).await?.open;
    ensure!(open.len() == 1, "{} asks are open", open.len());
    person.next_ask().await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_people_with_their_own_signatures_allow_what_neither_could_alone() -> Result<()> {
    let mut pair = Pair::start().await?;
    let (requester, session, ask) = pair.asked().await?;
    assert_eq!(
        ask.plan["approval"],
        json!([{"count": 2, "not_requester": true, "roles": ["operator"], "signature": true}])
    );
    let refused = requester.call::<acp::Respond>(allow(&ask, None)).await;
    let told = message(refused.expect_err("the requester is no approver"))?;
    assert!(told.contains("requester") || told.contains("opened"), "{told}");

    let mut boss = pair.person("boss", Role::Admin).await?;
    let seen = shown(&mut boss, session).await?;
    let refused = boss.call::<acp::Respond>(allow(&seen, None)).await;
    let told = message(refused.expect_err("an admin is no operator"))?;
    assert!(told.contains("operator"), "{told}");

    let mut ann = pair.person("ann", Role::Operator).await?;
    let seen = shown(&mut ann, session).await?;
    let unsigned = ann.call::<acp::Respond>(allow(&seen, None)).await;
    let told = message(unsigned.expect_err("no signature"))?;
    assert!(told.contains("signature"), "{told}");
    let signed = Some(pair.ann.sign(&seen)?);
    let counted = ann.call::<acp::Respond>(allow(&seen, signed.clone())).await?.counted;
    assert_eq!(counted, Some(acp::Counted { have: 1, need: 2 }));
    let counted = ann.next_of("permission.counted").await?.data;
    assert_eq!(
        (&counted["by"], &counted["have"], &counted["need"]),
        (&json!("ann"), &json!(1), &json!(2))
    );
    let again = ann.call::<acp::Respond>(allow(&seen, signed)).await;
    message(again.expect_err("nobody counts twice"))?;

    // What was counted outlives every process.
    drop((requester, boss, ann));
    pair.rig.kill_and_restart_all().await?;
    let mut ben = pair.person("ben", Role::Operator).await?;
    let seen = shown(&mut ben, session).await?;
    let settled = ben.call::<acp::Respond>(allow(&seen, Some(pair.ben.sign(&seen)?))).await?;
    assert_eq!(settled.counted, None);
    assert_eq!(ben.next_of("tool.result").await?.data["ok"], json!(true));

    let books = Books::open(&pair.rig)?;
    let by = |lines: &[Line], kind: &str, name: &str| -> Vec<Value> {
        lines.iter().filter(|line| line.kind == kind).map(|line| line.data[name].clone()).collect()
    };
    let receipts = books.stream("gateway", session).await?;
    assert_eq!(by(&receipts, "receipt.signed", "subject"), [json!("ann"), json!("ben")]);
    let effects = books.stream("sandbox-svc", session).await?;
    assert_eq!(by(&effects, "call.started", "rules"), [json!(["two-people"])]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_no_outweighs_every_yes() -> Result<()> {
    let pair = Pair::start().await?;
    let (mut requester, session, ask) = pair.asked().await?;
    let mut ann = pair.person("ann", Role::Operator).await?;
    let seen = shown(&mut ann, session).await?;
    ann.call::<acp::Respond>(allow(&seen, Some(pair.ann.sign(&seen)?))).await?;
    let mut ben = pair.person("ben", Role::Operator).await?;
    let seen = shown(&mut ben, session).await?;
    assert_eq!(seen, ask);
    ben.answer(&seen, Decision::Deny).await?;
    let resolved = requester.next_of("permission.resolved").await?.data;
    assert_eq!(
        (&resolved["decision"], &resolved["source"], &resolved["by"]),
        (&json!("deny"), &json!("operator"), &json!("ben"))
    );
    let result = requester.next_of("tool.result").await?.data;
    assert_eq!(result["error"]["code"], "PERMISSION_DENIED");
    let effects = Books::open(&pair.rig)?.stream("sandbox-svc", session).await?;
    assert!(effects.iter().all(|line| line.kind != "call.started"), "nothing ran");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allow_for_the_run_covers_this_action_until_it_is_taken_back() -> Result<()> {
    let call = |argv: &[&str]| Turn::Call(EXEC, json!({"argv": argv}));
    let turns = vec![
        call(&["true"]),
        call(&["true"]),
        call(&["sleep", "0"]),
        call(&["true"]),
        Turn::Say("done"),
    ];
    let rig = Rig::start(Spec::new(manifest("standing"), turns)).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("standing", None).await?;
    let prompt = person.prompt(session)?;

    let first = person.next_ask().await?;
    assert_eq!(first.plan["scopes"], json!(["once", "run"]));
    let run = RespondParams { scope: Some(acp::Scope::Run), ..allow(&first, None) };
    person.call::<acp::Respond>(run).await?;
    // The second `true` is not asked for; the next ask is another action, which the allow does not cover.
    let other = person.next_ask().await?;
    assert_eq!(other.plan["argv"], json!(["sleep", "0"]));
    let listed = person.call::<acp::GrantList>(acp::GrantListParams { session_id: session.into() });
    let [grant] = &listed.await?.grants[..] else { anyhow::bail!("one grant stands") };
    assert_eq!((grant.by.as_str(), grant.uses.get()), ("operator", 1));
    let taken = person.call::<acp::GrantRevoke>(acp::GrantRevokeParams {
        session_id: session.into(),
        receipt_id: grant.receipt_id.into(),
    });
    assert_eq!(taken.await?, acp::GrantRevokeAnswer { revoked: true, pending: false });
    person.answer(&other, Decision::Allow).await?;

    let again = person.next_ask().await?;
    assert_eq!(again.plan["argv"], json!(["true"]), "what was taken back is asked for anew");
    person.answer(&again, Decision::Allow).await?;
    within("the prompt's answer", prompt).await??;

    let books = Books::open(&rig)?;
    let gateway = books.stream("gateway", session).await?;
    let revoked: Vec<&Line> =
        gateway.iter().filter(|line| line.kind == "receipt.revoked").collect();
    let [revoked] = &revoked[..] else { anyhow::bail!("one revocation is recorded") };
    assert_eq!(revoked.data["receiptId"], json!(grant.receipt_id));
    let own = books.stream("agent-svc", session).await?;
    let standing: Vec<&Value> = own
        .iter()
        .filter(|line| line.kind == "policy.decision" && !line.data["receiptId"].is_null())
        .map(|line| &line.data["receiptId"])
        .collect();
    assert_eq!(standing, [&json!(grant.receipt_id)], "the decision names the allow it rests on");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_whose_key_nobody_listed_costs_another_round_and_not_the_call() -> Result<()> {
    let pair = Pair::start().await?;
    let (mut requester, session, _) = pair.asked().await?;
    let ivy = Signer::new("ivy")?;
    let mut people = Vec::new();
    for signer in [&pair.ann, &ivy] {
        let mut person = pair.person(signer.subject, Role::Operator).await?;
        let seen = shown(&mut person, session).await?;
        person.call::<acp::Respond>(allow(&seen, Some(signer.sign(&seen)?))).await?;
        people.push(person);
    }
    let again = requester.next_of("permission.requested").await?;
    let reason = again.data["reason"].as_str().context("a reason")?;
    assert!(reason.contains("ivy") && reason.contains("APPROVAL_KEY_UNKNOWN"), "{reason}");
    let ask = Ask::read(&again)?;
    for signer in [&pair.ann, &pair.ben] {
        let mut person = pair.person(signer.subject, Role::Operator).await?;
        assert_eq!(shown_last(&mut person, session, &ask).await?, ask);
        person.call::<acp::Respond>(allow(&ask, Some(signer.sign(&ask)?))).await?;
    }
    assert_eq!(requester.next_of("tool.result").await?.data["ok"], json!(true));
    Ok(())
}

/// Attaches, and reads the asks that came before until the open one is shown.
async fn shown_last(person: &mut Person, session: SessionId, open: &Ask) -> Result<Ask> {
    person.attach(AttachParams::session(session)).await?;
    loop {
        let ask = person.next_ask().await?;
        if ask.permission == open.permission {
            return Ok(ask);
        }
    }
}
