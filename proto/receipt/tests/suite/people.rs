//! People with keys and roles, a plan that asks for them, and the receipts they give for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::pki::{Ca, DOMAIN, NOW, grant};
use event::id::{CallId, ReceiptId, RunId};
use event::{Digest, Effect, EffectClass, Executor, Layer, Scope};
use rcgen::{KeyPair, PKCS_ED25519};
use receipt::{
    Admission, Approval, Approver, ApproverKey, Asked, Invalid, Knowledge, Network, Part, Plan,
    PublicKey, Receipt, Requirement, Role, Shortfall, Signer, Verified, Verifier, Version,
    admission, plan_digest,
};

pub(crate) type Judged = Result<Verified<Receipt>, Invalid>;

/// The gateway's signer, who is listed at the executor, and what was revoked there.
pub(crate) struct World {
    pub(crate) signer: Signer,
    verifier: Verifier,
    pub(crate) approvers: BTreeMap<(String, Digest), Approver>,
    pub(crate) revoked: BTreeSet<ReceiptId>,
}

impl World {
    pub(crate) fn new() -> Self {
        let ca = Ca::new();
        let verifier = Verifier::new(ca.pem.as_bytes(), DOMAIN).unwrap();
        let (approvers, revoked) = (BTreeMap::new(), BTreeSet::new());
        Self { signer: ca.signer(), verifier, approvers, revoked }
    }

    pub(crate) fn list(&mut self, subject: &str, key: PublicKey, roles: &[&str]) {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        self.approvers.insert((subject.to_owned(), key.id()), Approver { key, roles });
    }

    pub(crate) fn judged(&self, receipt: &Receipt) -> Judged {
        let signed = self.signer.sign(receipt).unwrap();
        self.verifier.verify(&signed, NOW, &|_| false)
    }

    pub(crate) fn admit(&self, plan: &Plan, receipts: &[Receipt]) -> Result<Admission, Shortfall> {
        let judged: Vec<Judged> = receipts.iter().map(|receipt| self.judged(receipt)).collect();
        self.admit_at(plan, &judged, NOW)
    }

    pub(crate) fn admit_at(
        &self,
        plan: &Plan,
        receipts: &[Judged],
        now: u64,
    ) -> Result<Admission, Shortfall> {
        let grant = grant();
        let (digest, action) = digests(plan);
        let asked = Asked { plan, digest, action, grant: &grant, now };
        let approver = |subject: &str, key| self.approvers.get(&(subject.to_owned(), key)).cloned();
        let is_revoked = |id| self.revoked.contains(&id);
        let knowledge = Knowledge { approver: &approver, is_revoked: &is_revoked };
        admission(&asked, receipts, &knowledge)
    }

    /// The reason of a refusal; empty where the plan is admitted.
    pub(crate) fn reason(&self, plan: &Plan, receipts: &[Receipt]) -> &'static str {
        self.admit(plan, receipts).err().map_or("", |short| short.reason())
    }
}

pub(crate) fn key() -> ApproverKey {
    let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    ApproverKey::from_pem(pair.serialize_pem().as_bytes()).unwrap()
}

pub(crate) fn digests(plan: &Plan) -> (Digest, Digest) {
    (plan_digest(&plan.to_bytes().unwrap()), plan.action_digest().unwrap())
}

/// A command in the session of `dev`.
pub(crate) fn plan(approval: Vec<Requirement>) -> Plan {
    Plan {
        v: Version::V1,
        session: grant().session,
        run: RunId::new(),
        call: CallId::new(),
        tool: "process.exec".into(),
        action: "process.exec".into(),
        subject: Some("cargo test".into()),
        effect: Effect::Ask,
        effect_class: EffectClass::Staged,
        executor: Executor::SandboxSvc,
        scopes: vec![Scope::Once, Scope::Run],
        task: None,
        manifest: Digest::of(b"manifest"),
        policies: vec![],
        parts: vec![Part {
            action: "process.exec".into(),
            subject: Some("cargo test".into()),
            effect: Effect::Ask,
            layer: Layer::Manifest,
            rule: "tests".into(),
            justification: None,
            matching: vec![],
        }],
        approval,
        network: Network::None,
        argv: Some(vec!["cargo".into(), "test".into()]),
        program: None,
        cwd: None,
        env: None,
        image: None,
        limits: None,
        mounts: Vec::new(),
        snapshot: None,
        workspace: None,
        patch: None,
        stdin: None,
        check: None,
        steps: Vec::new(),
        mcp: None,
        edit: None,
    }
}

pub(crate) fn two(roles: &[&str]) -> Requirement {
    let roles = roles.iter().map(|role| (*role).to_owned()).collect();
    Requirement { roles, not_requester: true, count: 2, signature: false }
}

pub(crate) fn allow(plan: &Plan, subject: &str, roles: &[Role], scope: Scope) -> Receipt {
    let (digest, action) = digests(plan);
    Receipt {
        id: ReceiptId::new(),
        tenant: "default".into(),
        session: plan.session,
        run: plan.run,
        call: plan.call,
        permission: "0198f000-0000-7000-8000-000000000003".parse().unwrap(),
        plan: digest,
        action,
        scope,
        subject: subject.into(),
        roles: roles.iter().copied().collect(),
        approval: None,
        audience: plan.executor,
        iat: NOW,
        exp: NOW + 3_600,
    }
}

/// What the person of this receipt signs for it.
pub(crate) fn approval(receipt: &Receipt) -> Approval {
    Approval {
        plan: receipt.plan,
        action: receipt.action,
        permission: receipt.permission,
        session: receipt.session,
        run: receipt.run,
        call: receipt.call,
        scope: receipt.scope,
        subject: receipt.subject.clone(),
        iat: receipt.iat,
        exp: receipt.iat + 3_600,
    }
}

pub(crate) fn signed(receipt: Receipt, key: &ApproverKey) -> Receipt {
    let approval = key.sign(&approval(&receipt)).unwrap();
    Receipt { approval: Some(approval), ..receipt }
}
