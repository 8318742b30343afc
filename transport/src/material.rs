//! The process's certificates and whom it trusts, read from a directory again and again; what does not fit together never replaces what does.

mod keys;
mod pem;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use metrics::{counter, gauge};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::keys::Keys;
pub use self::pem::Pem;
use crate::{Chain, Identity, Peer, Service, TrustDomain, denylist::DenyList, tls::Admits};

/// Certificates, key, trusted issuers and the deny list of one process.
#[derive(Debug)]
pub struct Material {
    domain: TrustDomain,
    /// Absent when the material was handed over in memory.
    dir: Option<PathBuf>,
    seen: Mutex<Pem>,
    keys: ArcSwap<Keys>,
    denied: ArcSwap<DenyList>,
    /// Tells open streams to look at the deny list again.
    denials: watch::Sender<()>,
}

impl Material {
    /// Reads a directory with `tls.crt` (the leaf, then intermediates), `tls.key`, `ca.crt` (the services' issuers) and,
    /// where they apply, `auditors-ca.crt` and `denylist`. Fails when anything in it does not fit together.
    pub fn open(dir: &Path, domain: TrustDomain) -> Result<Arc<Self>, Error> {
        Self::new(Pem::read(dir)?, Some(dir.to_owned()), domain)
    }

    /// Holds what the caller already has; [`Material::reload`] then finds nothing new.
    pub fn from_pem(pem: Pem, domain: TrustDomain) -> Result<Arc<Self>, Error> {
        Self::new(pem, None, domain)
    }

    fn new(pem: Pem, dir: Option<PathBuf>, domain: TrustDomain) -> Result<Arc<Self>, Error> {
        let keys = Keys::parse(&pem, &domain, OffsetDateTime::now_utc())?;
        let denied = parse_denylist(pem.denylist.as_deref(), &domain)?;
        keys.publish(None);
        Ok(Arc::new(Self {
            domain,
            dir,
            seen: Mutex::new(pem),
            keys: ArcSwap::from_pointee(keys),
            denied: ArcSwap::from_pointee(denied),
            denials: watch::Sender::new(()),
        }))
    }

    /// Reads the directory again. What is broken is refused, counted and logged, and the last good stays in force. The
    /// deny list is judged by itself, so that a half-written certificate cannot hold up a ban.
    pub fn reload(&self) -> Result<Reload, Error> {
        let result = self.try_reload();
        let label = match &result {
            Ok(Reload::Unchanged) => "unchanged",
            Ok(Reload::Changed) => "changed",
            Err(_) => "failed",
        };
        counter!("harness_tls_reload_total", "result" => label).increment(1);
        gauge!("harness_tls_reload_failing").set(if result.is_err() { 1.0 } else { 0.0 });
        match &result {
            Ok(Reload::Unchanged) => {}
            Ok(Reload::Changed) => {
                info!(identity = %self.keys.load().leaf.peer.uri, "tls material changed");
            }
            Err(error) => {
                warn!(error = %Chain(error), "tls material cannot be reloaded, the last good stays in force");
            }
        }
        result
    }

    fn try_reload(&self) -> Result<Reload, Error> {
        let Some(dir) = &self.dir else { return Ok(Reload::Unchanged) };
        // Held to the end, so that a poll and a signal cannot finish in the wrong order. A panic elsewhere leaves nothing
        // half done in it.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let bans = pem::denylist(dir).and_then(|found| self.reload_denylist(&mut seen, found));
        let keys = Pem::read(dir).and_then(|found| self.reload_keys(&mut seen, found));
        match (bans?, keys?) {
            (Reload::Unchanged, Reload::Unchanged) => Ok(Reload::Unchanged),
            _ => Ok(Reload::Changed),
        }
    }

    fn reload_denylist(&self, seen: &mut Pem, found: Option<Vec<u8>>) -> Result<Reload, Error> {
        if found == seen.denylist {
            return Ok(Reload::Unchanged);
        }
        if found.is_none() {
            return Err(Error::DenylistGone);
        }
        self.denied.store(Arc::new(parse_denylist(found.as_deref(), &self.domain)?));
        seen.denylist = found;
        self.denials.send_replace(());
        Ok(Reload::Changed)
    }

    fn reload_keys(&self, seen: &mut Pem, found: Pem) -> Result<Reload, Error> {
        if found.same_keys(seen) {
            return Ok(Reload::Unchanged);
        }
        let next = Keys::parse(&found, &self.domain, OffsetDateTime::now_utc())?;
        let last = self.keys.load();
        if !next.same_role(&last) {
            return Err(Error::OtherIdentity { uri: next.leaf.peer.uri.to_string() });
        }
        next.publish(Some(&last));
        self.keys.store(Arc::new(next));
        *seen = Pem { denylist: seen.denylist.take(), ..found };
        Ok(Reload::Changed)
    }

    /// The trust domain of this installation.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.domain
    }

    /// Who this process is.
    pub fn identity(&self) -> Identity {
        self.keys.load().leaf.peer.identity.clone()
    }

    /// Whether the deny list names this SPIFFE id or this serial number (hex, in any writing).
    pub fn denies(&self, uri: &str, serial: &str) -> bool {
        self.denied.load().names(uri, serial)
    }

    /// The issuers of services, as PEM, for whoever verifies what services sign.
    pub fn services_ca(&self) -> Vec<u8> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).ca.clone()
    }

    /// A server configuration for people's connections: this process's certificate, no client certificate asked.
    pub fn public_server(&self) -> Arc<rustls::ServerConfig> {
        self.keys.load().public.clone()
    }

    pub(crate) fn server(&self, admits: Admits) -> Option<Arc<rustls::ServerConfig>> {
        let keys = self.keys.load();
        match admits {
            Admits::Services => Some(keys.services.clone()),
            Admits::Auditors => keys.auditors.clone(),
        }
    }

    pub(crate) fn client(&self, expect: Service) -> Result<Arc<rustls::ClientConfig>, Error> {
        self.keys.load().client(expect, &self.domain, self.denied.load_full())
    }

    pub(crate) fn denies_peer(&self, peer: &Peer) -> bool {
        self.denies(&peer.uri, &peer.serial)
    }

    /// Returns when the deny list names `peer`.
    pub(crate) async fn until_denied(&self, peer: &Peer) {
        let mut changes = self.denials.subscribe();
        while !self.denies_peer(peer) {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// What is left of the own leaf; zero once it has expired.
    pub(crate) fn validity_left(&self) -> Duration {
        let left = self.keys.load().leaf.not_after - OffsetDateTime::now_utc();
        Duration::try_from(left).unwrap_or(Duration::ZERO)
    }

    pub(crate) fn age(&self) -> Duration {
        let age = OffsetDateTime::now_utc() - self.keys.load().loaded_at;
        Duration::try_from(age).unwrap_or(Duration::ZERO)
    }

    /// Reloads at every `interval` and at every `SIGHUP`, until `shutdown`.
    pub(crate) async fn watch(
        self: Arc<Self>,
        interval: Duration,
        mut hangup: tokio::signal::unix::Signal,
        shutdown: CancellationToken,
    ) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(interval) => {}
                _ = hangup.recv() => {}
            }
            let material = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || material.reload().is_ok()).await
            {
                warn!(error = %Chain(&error), "tls material was not reloaded");
            }
        }
    }
}

fn parse_denylist(text: Option<&[u8]>, domain: &TrustDomain) -> Result<DenyList, Error> {
    DenyList::parse(text.unwrap_or_default(), domain).map_err(Error::Denylist)
}

/// What a reload found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// The same as before.
    Unchanged,
    /// Something new, in force for every later connection and request.
    Changed,
}

/// Why material cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is missing or cannot be read.
    #[error("cannot read {file}")]
    Read {
        /// Which file.
        file: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A private key that others on this host can read.
    #[error("{file} may be read by others; give it mode 0600")]
    Exposed {
        /// Which file.
        file: String,
    },
    /// A file that holds no certificate.
    #[error("{file} holds no certificate; it must be PEM")]
    NoCertificate {
        /// Which file.
        file: &'static str,
    },
    /// A file that holds something broken.
    #[error("{file} cannot be parsed; it must be PEM")]
    Pem {
        /// Which file.
        file: &'static str,
        /// Why.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// An issuer that cannot be trusted.
    #[error("{file} holds a certificate that cannot be an issuer")]
    Issuer {
        /// Which file.
        file: &'static str,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// Key and certificate do not belong together, or the key is of an unknown kind.
    #[error("tls.key does not belong to tls.crt; replace both together")]
    Key(#[source] rustls::Error),
    /// The leaf names nobody.
    #[error("tls.crt is not usable")]
    Leaf(#[source] crate::leaf::Unidentified),
    /// The leaf is too old or too new.
    #[error("tls.crt is valid from {from} to {until} only; issue a new one, or correct the clock")]
    Validity {
        /// First moment.
        from: OffsetDateTime,
        /// Last moment.
        until: OffsetDateTime,
    },
    /// The leaf was not issued by whom this installation trusts.
    #[error("tls.crt was not issued by an issuer in ca.crt; replace all files together")]
    Untrusted(#[source] rustls::Error),
    /// Somebody else's certificate.
    #[error(
        "tls.crt belongs to {uri}, not to an instance of {service}; issue one for this service"
    )]
    WrongService {
        /// Whose it is.
        uri: String,
        /// Who this process should be.
        service: Service,
    },
    /// After a reload this process would be somebody else.
    #[error("tls.crt now belongs to {uri}; restart to change the role")]
    OtherIdentity {
        /// Whose it is.
        uri: String,
    },
    /// The deny list cannot be read.
    #[error("the deny list is refused as a whole")]
    Denylist(#[source] crate::denylist::Error),
    /// The deny list vanished.
    #[error("denylist is gone and stays in force; write an empty file to lift every ban")]
    DenylistGone,
    /// rustls refuses the combination.
    #[error("no tls configuration can be made")]
    Unusable(#[source] crate::tls::Unusable),
}

#[cfg(test)]
mod tests;
