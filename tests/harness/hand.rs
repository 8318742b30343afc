//! Hands that sign what only a gateway may: one with a right certificate, and each kind of wrong one. They sign whatever
//! they are given.

use anyhow::{Context as _, Result};
use harness::pki::{Hosts, Named, Subject};
use receipt::{Payload, Signed};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use time::{Duration, OffsetDateTime};
use transport::Service;
use transport::issue::{Authority, DevPki, Eku, Issued, LeafSpec};

use crate::Rig;

/// A key, and the certificates that it shows.
#[derive(Clone)]
pub struct Hand {
    key_pem: String,
    chain: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Hand {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Hand").finish_non_exhaustive()
    }
}

impl Hand {
    fn new(key_pem: &str, chain_pem: &str) -> Result<Self> {
        let chain = CertificateDer::pem_slice_iter(chain_pem.as_bytes())
            .map(|certificate| certificate.map(|der| der.to_vec()))
            .collect::<Result<_, _>>()?;
        Ok(Self { key_pem: key_pem.to_owned(), chain })
    }

    fn issued(issued: &Issued) -> Result<Self> {
        Self::new(&issued.key_pem, &issued.cert_pem)
    }

    fn of(rig: &Rig, subject: &Subject) -> Result<Self> {
        let files = rig.store()?.issue(subject, &Hosts::default(), 1)?;
        let file = |name: &str| -> Result<&str> {
            let found = files.iter().find(|Named { name: found, .. }| *found == name);
            Ok(std::str::from_utf8(&found.with_context(|| format!("no {name}"))?.bytes)?)
        };
        let name = if matches!(subject, Subject::Receipts { .. }) { "receipt" } else { "tls" };
        Self::new(file(&format!("{name}.key"))?, file(&format!("{name}.crt"))?)
    }

    /// A gateway of the mesh.
    pub fn gateway(rig: &Rig, instance: &str) -> Result<Self> {
        Self::of(rig, &Subject::Receipts { instance: instance.to_owned() })
    }

    /// The key of somebody else beside a gateway's certificate, which every receipt shows to whoever carries it.
    pub fn with_the_certificate_of(&self, gateway: &Self) -> Self {
        Self { key_pem: self.key_pem.clone(), chain: gateway.chain.clone() }
    }

    /// Everyone who has a good signature and may not sign.
    pub fn untrusted(rig: &Rig) -> Result<Vec<(&'static str, Self)>> {
        let domain = rig.store()?.domain().clone();
        let stranger = DevPki::new(domain.clone())?;
        let strange = stranger.receipts("suite")?;
        let own_chain = [&strange.cert_pem, stranger.services.cert_pem(), stranger.root.cert_pem()];
        let spec = LeafSpec::receipts(&domain, "suite");
        let by = |authority: &str, spec: &LeafSpec| {
            Self::issued(&authority_of(rig, authority)?.issue(spec)?)
        };
        let now = OffsetDateTime::now_utc();
        let changed = |change: &dyn Fn(&mut LeafSpec)| {
            let mut spec = spec.clone();
            change(&mut spec);
            by("services", &spec)
        };
        let named = |name: String| changed(&|it| it.uri_sans = vec![format!("spiffe://{name}")]);
        let run_out = changed(&|it| {
            (it.not_before, it.not_after) = (now - Duration::days(2), now - Duration::days(1));
        });
        let service =
            |service| Self::of(rig, &Subject::Service { service, instance: "suite".to_owned() });
        Ok(vec![
            ("the gateway's key for connections", service(Service::Gateway)?),
            ("agent-svc's own key", service(Service::AgentSvc)?),
            ("another authority of gateways", Self::issued(&strange)?),
            ("a chain of one's own making", Self::new(&strange.key_pem, &own_chain.join("\n"))?),
            ("the clients' authority", by("clients", &spec)?),
            ("the auditors' authority", by("auditors", &spec)?),
            ("one that opens connections too", changed(&|it| it.ekus.push(Eku::ClientAuth))?),
            ("a service that is no gateway", named(format!("{domain}/receipts/agent-svc/suite"))?),
            ("another trust domain", named("elsewhere.test/receipts/gateway/suite".to_owned())?),
            ("one that has run out", run_out?),
        ])
    }

    pub fn sign<P: Payload>(&self, payload: &P) -> Result<Signed> {
        self.sign_bytes(P::DOMAIN, payload.to_bytes()?)
    }

    /// Signs what no gateway would.
    pub fn sign_bytes(&self, domain: &str, payload: Vec<u8>) -> Result<Signed> {
        let key = rcgen::KeyPair::from_pem(&self.key_pem)?;
        let message = [domain.as_bytes(), b"\0", &payload].concat();
        let signature = rcgen::SigningKey::sign(&key, &message)?;
        Ok(Signed { payload, signature, chain: self.chain.clone() })
    }
}

/// An issuer of the mesh, as whoever holds the offline keys could use it.
fn authority_of(rig: &Rig, name: &str) -> Result<Authority> {
    let dir = rig.mesh.layout().pki().join(name);
    let read = |file: &str| std::fs::read_to_string(dir.join(file));
    Ok(Authority::from_pem(&read("ca.crt")?, &read("ca.key")?)?)
}
