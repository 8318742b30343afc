//! What an administrator puts beside sandbox-svc: ceilings and the list of approvers, and the people who are on it. It
//! writes files as an administrator would and judges nothing.

use std::path::PathBuf;

use anyhow::Result;
use receipt::{Approval, ApproverKey, PublicKey, Receipt};
use tempfile::TempDir;
use transport::Service;

use crate::Spec;

/// The administrator's directory. Every file in it is taken up when it changes.
#[derive(Debug)]
pub struct Admin(TempDir);

impl Admin {
    /// With ceilings that say nothing and nobody on the list.
    pub fn new() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("harness-admin-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir()?;
        let admin = Self(dir);
        std::fs::create_dir(admin.path("tenants"))?;
        admin.ceiling("")?;
        admin.approvers(&[])?;
        Ok(admin)
    }

    /// The settings of sandbox-svc that name these files.
    #[must_use]
    pub fn over(&self, spec: Spec) -> Spec {
        let path = |name: &str| self.path(name).display().to_string();
        spec.setting(Service::SandboxSvc, "ceiling", path("ceiling.yaml"))
            .setting(Service::SandboxSvc, "tenant-ceilings", path("tenants"))
            .setting(Service::SandboxSvc, "approver-keys", path("approvers.yaml"))
    }

    pub fn ceiling(&self, rules: &str) -> Result<()> {
        self.write("ceiling.yaml", &format!("kind: ceiling\nid: top\n{rules}\n"))
    }

    pub fn tenant(&self, tenant: &str, rules: &str) -> Result<()> {
        let text = format!("kind: ceiling\nid: {tenant}\n{rules}\n");
        self.write(&format!("tenants/{tenant}.yaml"), &text)
    }

    /// Subject, key and roles of each.
    pub fn approvers(&self, listed: &[(&str, PublicKey, &str)]) -> Result<()> {
        let row = |(subject, key, roles): &(&str, PublicKey, &str)| {
            format!("{{subject: {subject}, key: '{key}', roles: [{roles}]}}")
        };
        let rows: Vec<String> = listed.iter().map(row).collect();
        self.write("approvers.yaml", &format!("approvers: [{}]\n", rows.join(", ")))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// All of it or nothing, as an editor saves.
    fn write(&self, name: &str, text: &str) -> Result<()> {
        let staged = self.path("staged");
        std::fs::write(&staged, text)?;
        Ok(std::fs::rename(staged, self.path(name))?)
    }
}

/// Somebody who can sign for themselves.
#[derive(Debug)]
pub struct Signatory {
    pub subject: String,
    key: ApproverKey,
}

impl Signatory {
    pub fn new(subject: &str) -> Result<Self> {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        let key = ApproverKey::from_pem(pair.serialize_pem().as_bytes())?;
        Ok(Self { subject: subject.to_owned(), key })
    }

    pub fn public(&self) -> Result<PublicKey> {
        Ok(self.key.public()?)
    }

    /// What they would sign for this receipt.
    pub fn approval(&self, receipt: &Receipt) -> Approval {
        let Receipt { plan, action, permission, session, run, call, scope, iat, .. } = *receipt;
        let (subject, exp) = (self.subject.clone(), iat + 300);
        Approval { plan, action, permission, session, run, call, scope, subject, iat, exp }
    }

    /// The receipt with their name, and their signature under `approval`.
    pub fn signed(&self, receipt: &Receipt, approval: &Approval) -> Result<Receipt> {
        let approval = Some(self.key.sign(approval)?);
        Ok(Receipt { subject: self.subject.clone(), approval, ..receipt.clone() })
    }
}
