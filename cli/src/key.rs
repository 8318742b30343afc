//! A person's own signing key: made here, read here, and used only for a plan that was shown. It never leaves this
//! machine; whether its signature counts, the executor's administrator decides.
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Subcommand;
use event::{Digest, Scope, id::SessionId};
use receipt::{Approval, ApproverKey, Malformed, NotAKey};
use serde::Serialize;
use time::OffsetDateTime;

use crate::{
    error::{Exit, Explain},
    escape,
    file::{self, Access},
    output,
    session::Ask,
    target::Target,
    token::Role,
};

const EXAMPLES: &str = "\
Examples:
  harness key new --subject ada --out ./ada-key
  harness key new --subject grace --role admin --role operator --out ./grace-key --json

The private key stays with the person, who gives it to 'harness connect' or 'harness resume' with --key. The printed line
goes to whoever keeps the approvers file of sandbox-svc ('harness up --approver-keys FILE'), below 'approvers:'. The
subject is the person's name as their API token has it.";

/// In the directory that is named.
const NAME: &str = "approval.key";
const SUBJECT: &str = "Subject: ";
/// An Ed25519 private key of 32 bytes without anything beside it: what stands before them in PKCS #8.
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const SEED_BYTES: usize = 32;
/// The longest that a signature may be good for.
const LIFE: u64 = 3600;

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Key {
    /// Make a key, and print the line that makes its signatures count
    New {
        /// Whose it is, as their API token has it
        #[arg(long, value_name = "NAME")]
        subject: String,
        /// As what the line lists them; may be given several times
        #[arg(long, value_name = "ROLE", default_value = "operator")]
        role: Vec<Role>,
        /// Directory for the key; made when it is not there
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    File(#[from] file::Error),
    #[error("{} can be read by others than its owner", .0.display())]
    Open(PathBuf),
    #[error("{} holds no approval key", path.display())]
    NotAKey { path: PathBuf, source: NotAKey },
    #[error("{} does not say whose key it is", .0.display())]
    NoSubject(PathBuf),
    #[error("the key signs as '{key}', and the token is that of '{token}'")]
    OfAnother { key: String, token: String },
    #[error(
        "the subject is empty, longer than 128 bytes, or has control characters or blanks around it"
    )]
    Name,
    #[error("the system gives no random bytes")]
    Random(#[source] getrandom::Error),
    #[error("the new key can not be used")]
    Made(#[source] NotAKey),
    #[error("the plan that waits is none that can be signed")]
    NotAPlan,
    #[error("the signature can not be made")]
    Sign(#[source] Malformed),
    #[error("the signature has no form that can be sent")]
    Form(#[source] acp::NotAnApproval),
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::File(error) => error.exit(),
            Self::Open(_)
            | Self::NotAKey { .. }
            | Self::NoSubject(_)
            | Self::OfAnother { .. }
            | Self::Name => Exit::Usage,
            Self::Random(_) | Self::Made(_) | Self::NotAPlan | Self::Sign(_) | Self::Form(_) => {
                Exit::Failed
            }
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::File(error) => return error.advice(),
            Self::Open(path) => {
                return format!("'chmod 600 {}', or make a new one", path.display());
            }
            Self::NotAKey { .. } | Self::NoSubject(_) => {
                "give --key the file that 'harness key new' wrote"
            }
            Self::OfAnother { key, token } => {
                return format!("give the token of '{key}' (--token-file), or a key of '{token}'");
            }
            Self::Name => "give the name that the person's API token has",
            Self::Random(_) | Self::Made(_) | Self::Sign(_) | Self::Form(_) => "try again",
            Self::NotAPlan => "check that client and gateway are of one version",
        }
        .to_owned()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made<'a> {
    subject: &'a str,
    key_id: Digest,
    public_key: String,
    file: &'a Path,
    /// For the approvers file.
    line: &'a str,
}

pub(crate) fn key(command: Key) -> Result<Exit, crate::Error> {
    let Key::New { subject, role, out, json } = command;
    let (path, signatory) = make(&subject, &out)?;
    let public = signatory.key.public().map_err(Error::Made)?;
    let line = listed(&subject, &public.to_string(), &role);
    if json {
        let key_id = public.id();
        let public_key = public.to_string();
        let made = Made { subject: &subject, key_id, public_key, file: &path, line: &line };
        output::document("approval-key", &made)?;
    } else {
        output::progress(&format!(
            "wrote {}; keep it to yourself. Signatures count once an administrator has put this line into the approvers \
             file:",
            path.display()
        ));
        output::line_out(&line)?;
    }
    Ok(Exit::Done)
}

/// A line of the list `approvers`; JSON strings are YAML.
fn listed(subject: &str, key: &str, roles: &[Role]) -> String {
    let subject = escape::json_line(&subject.into());
    let roles: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
    format!("  - {{subject: {subject}, key: \"{key}\", roles: [{}]}}", roles.join(", "))
}

fn make(subject: &str, out: &Path) -> Result<(PathBuf, Signatory), Error> {
    if !is_name(subject) {
        return Err(Error::Name);
    }
    let mut seed = [0; SEED_BYTES];
    getrandom::fill(&mut seed).map_err(Error::Random)?;
    let der = STANDARD.encode([&PKCS8_HEAD[..], &seed].concat());
    let pem = format!(
        "Whoever has this file signs approvals as its subject.\n{SUBJECT}{subject}\n\
         -----BEGIN PRIVATE KEY-----\n{der}\n-----END PRIVATE KEY-----\n"
    );
    let key = ApproverKey::from_pem(pem.as_bytes()).map_err(Error::Made)?;
    file::private_path(out)?;
    let path = out.join(NAME);
    file::create(&path, pem.as_bytes(), Access::PRIVATE)?;
    Ok((path, Signatory { subject: subject.to_owned(), key }))
}

fn is_name(subject: &str) -> bool {
    !subject.is_empty()
        && subject.len() <= 128
        && subject.trim() == subject
        && !subject.chars().any(char::is_control)
}

/// Somebody who can sign what was shown to them.
#[derive(Debug)]
pub(crate) struct Signatory {
    subject: String,
    key: ApproverKey,
}

impl Signatory {
    /// A key that others may read is nobody's own.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let found = fs::metadata(path).map_err(file::failed("read", path))?;
        if found.permissions().mode() & 0o077 != 0 {
            return Err(Error::Open(path.to_owned()));
        }
        let text = file::read_text(path)?;
        let key = ApproverKey::from_pem(text.as_bytes())
            .map_err(|source| Error::NotAKey { path: path.to_owned(), source })?;
        let before = text.split("-----").next().unwrap_or_default();
        let subject = before.lines().find_map(|line| line.strip_prefix(SUBJECT));
        match subject.filter(|subject| is_name(subject)) {
            Some(subject) => Ok(Self { subject: subject.to_owned(), key }),
            None => Err(Error::NoSubject(path.to_owned())),
        }
    }

    /// The key that was named, if one was. One whose signature the gateway would refuse under the target's token is
    /// refused here.
    pub(crate) fn for_target(
        path: Option<&Path>,
        target: &Target,
    ) -> Result<Option<Self>, crate::Error> {
        let Some(path) = path else { return Ok(None) };
        let key = Self::read(path)?;
        match target.subject() {
            Some(token) if token != key.subject => {
                Err(Error::OfAnother { key: key.subject, token }.into())
            }
            Some(_) | None => Ok(Some(key)),
        }
    }

    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    /// Signs the plan of an ask. Whoever calls has shown it in full.
    pub(crate) fn sign(
        &self,
        ask: &Ask,
        session: SessionId,
        scope: Scope,
        now: OffsetDateTime,
    ) -> Result<acp::Approval, Error> {
        let plan = ask.plan().ok_or(Error::NotAPlan)?;
        let action = plan.action_digest().map_err(|_| Error::NotAPlan)?;
        let iat = u64::try_from(now.unix_timestamp()).unwrap_or_default();
        let approval = Approval {
            plan: ask.plan_digest,
            action,
            permission: ask.permission_id,
            session,
            run: plan.run,
            call: plan.call,
            scope,
            subject: self.subject.clone(),
            iat,
            exp: iat + LIFE,
        };
        let signed = self.key.sign(&approval).map_err(Error::Sign)?;
        Ok(acp::Approval {
            payload: acp::Base64::new(signed.payload_text()).map_err(Error::Form)?,
            signature: acp::SignatureHex::new(signed.signature_text()).map_err(Error::Form)?,
            key_id: signed.key_id(),
        })
    }
}

#[cfg(test)]
mod tests;
