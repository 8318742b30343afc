//! One decision among a thousand rules, and one receipt signed and verified, each beside a bare Ed25519 verification of
//! the same receipt's bytes. Nothing here waits for a disk, a process or a network.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use event::id::{CallId, PermissionId, ReceiptId, RunId, SessionId};
use event::{Digest, Executor, Scope};
use harness::pki::{Hosts, Store, Subject};
use manifest::{Action, Command, Manifest, Rulebook};
use receipt::{Payload as _, Receipt, Signer, Verifier};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::json;
use transport::Service;

use crate::sample::Figure;

pub(crate) const DECISION: &str = "policy.decision";
pub(crate) const COMMAND: &str = "policy.command";
pub(crate) const ROUND: &str = "receipt.sign_verify";

const RULES: usize = 1_000;
/// One sample is the mean of so many.
const REPEATS: u32 = 200;
const BARE: &str = "one bare Ed25519 verification";

type Once<'a> = &'a dyn Fn() -> Result<()>;

/// Of each bench whose name begins so.
pub(crate) fn measure(prefix: &str, rounds: u32) -> Result<Vec<Figure>> {
    let book = rulebook()?;
    let proofs = Proofs::prepare()?;
    let path = format!("src/{}/main.rs", RULES / 2);
    let command = Command::new(["sh", "-c", "cargo test && cargo doc | tail -n 3"]);
    let decide = || -> Result<()> {
        black_box(book.decide(Action::FsWrite, Some(black_box(&path))));
        Ok(())
    };
    let judge = || -> Result<()> {
        black_box(book.decide_exec(black_box(&command)));
        Ok(())
    };
    let round = || proofs.round();
    let ours: [(&'static str, Once<'_>, f64); 3] =
        [(DECISION, &decide, 1.0), (COMMAND, &judge, 2.0), (ROUND, &round, 8.0)];
    let mut figures = Vec::new();
    for (name, ours, goal) in ours {
        if name.starts_with(prefix) {
            let (mut our, mut bare) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                our.push(mean(ours)?);
                bare.push(mean(&|| proofs.bare())?);
            }
            figures.push(Figure::new(name, &our, BARE, &bare, goal));
        }
    }
    Ok(figures)
}

fn mean(once: Once<'_>) -> Result<Duration> {
    let began = Instant::now();
    for _ in 0..REPEATS {
        once()?;
    }
    Ok(began.elapsed() / REPEATS)
}

/// A manifest with a thousand patterns for the action that is asked about.
fn rulebook() -> Result<Rulebook> {
    let effects = ["allow", "ask", "deny"];
    let pattern = |index: usize| (format!("src/{index}/**"), effects[index % 3].into());
    let writes: serde_json::Map<String, serde_json::Value> = (0..RULES).map(pattern).collect();
    let program = |index: usize| (format!("tool-{index} **"), effects[index % 3].into());
    let commands: serde_json::Map<String, serde_json::Value> = (0..RULES).map(program).collect();
    let text = json!({
        "id": "bench",
        "title": "Many rules",
        "goal": "Be decided about.",
        "acceptance": ["decided"],
        "allowed_paths": ["src/**"],
        "permissions": {"fs.write": writes, "process.exec": commands},
    });
    let manifest = Manifest::parse(text.to_string().as_bytes(), "bench.yaml")?;
    Ok(Rulebook::new(manifest, None, None))
}

struct Proofs {
    signer: Signer,
    verifier: Verifier,
    receipt: Receipt,
    payload: Vec<u8>,
    signature: Vec<u8>,
    message: Vec<u8>,
    key: Vec<u8>,
}

impl Proofs {
    fn prepare() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let store = Store::init(&dir.path().join("pki"), "bench.test".parse()?)?;
        let subject = Subject::Receipts { instance: "bench".to_owned() };
        let files = store.issue(&subject, &Hosts::default(), 1)?;
        let file = |name: &str| {
            files.iter().find(|file| file.name == name).map(|file| &file.bytes).context("a file")
        };
        let (chain, key) = (file("receipt.crt")?, file("receipt.key")?);
        let service =
            Subject::Service { service: Service::SandboxSvc, instance: "bench".to_owned() };
        let own = store.issue(&service, &Hosts::default(), 1)?;
        let ca = own.iter().find(|file| file.name == "ca.crt").context("a CA")?;
        let verifier = Verifier::new(&ca.bytes, "bench.test")?;
        let signer = Signer::from_pem(chain, key)?;
        let receipt = receipt();
        let signed = signer.sign(&receipt)?;
        let message = [Receipt::DOMAIN.as_bytes(), b"\0", &signed.payload].concat();
        let pair = rcgen::KeyPair::from_pem(std::str::from_utf8(key)?)?;
        let key = rcgen::PublicKeyData::der_bytes(&pair).to_vec();
        let (payload, signature) = (signed.payload, signed.signature);
        Ok(Self { signer, verifier, receipt, payload, signature, message, key })
    }

    fn round(&self) -> Result<()> {
        let signed = self.signer.sign(black_box(&self.receipt))?;
        ensure!(signed.payload == self.payload, "the same receipt has the same bytes");
        let verified = self.verifier.verify::<Receipt>(&signed, self.receipt.iat, &|_| false)?;
        ensure!(*verified == self.receipt, "what was signed is what is read");
        Ok(())
    }

    fn bare(&self) -> Result<()> {
        let key = UnparsedPublicKey::new(&ED25519, &self.key);
        let sound = key.verify(black_box(&self.message), &self.signature);
        ensure!(sound.is_ok(), "the bare verification failed");
        Ok(())
    }
}

fn receipt() -> Receipt {
    let iat = u64::try_from(time::OffsetDateTime::now_utc().unix_timestamp()).unwrap_or_default();
    Receipt {
        id: ReceiptId::new(),
        tenant: "bench".to_owned(),
        session: SessionId::new(),
        run: RunId::new(),
        call: CallId::new(),
        permission: PermissionId::new(),
        plan: Digest::of(b"plan"),
        action: Digest::of(b"action"),
        scope: Scope::Once,
        subject: "person".to_owned(),
        roles: [receipt::Role::Operator].into(),
        approval: None,
        audience: Executor::SandboxSvc,
        iat,
        exp: iat + 3_600,
    }
}
