//! Who may use this service for what: verifies grants, compiles manifests, keeps fences. A session is known
//! here only by a grant that the gateway signed.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use event::Digest;
use event::id::SessionId;
use manifest::{Backend, Manifest, Mode, Rulebook};
use receipt::{Grant, Payload, Signed, Verified, Verifier};
use time::OffsetDateTime;
use transport::{Chain, Material};

use crate::broker::Brokers;
use crate::config::StagingKind;
use crate::engine::{Dialect, Docker, ImageError};
use crate::error::Error;
use crate::image::ImageName;
use crate::mounts;
use crate::mounts::dependency::Dependencies;
use crate::policy::{Approvers, Policies, Unusable};

use crate::store::{Fenced, NewSession, SessionRow, Store};

/// How many compiled manifests are kept.
const COMPILED: usize = 64;

/// Who says that it owns a session now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) session: SessionId,
    pub(crate) node: String,
    pub(crate) epoch: u64,
}

/// A registered session whose fence the caller holds.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) grant: Grant,
    pub(crate) manifest: Arc<Manifest>,
    /// Of the present fence.
    pub(crate) epoch: u64,
}

/// What this host lets sessions name.
#[derive(Debug)]
pub(crate) struct Trees {
    pub(crate) workspaces: BTreeMap<String, PathBuf>,
    pub(crate) dependencies: Dependencies,
    pub(crate) staging: StagingKind,
    /// The service's own directories.
    pub(crate) own: Arc<[(u64, u64)]>,
}

pub(crate) struct Sessions {
    store: Store,
    verifier: Verifier,
    material: Arc<Material>,
    trees: Trees,
    engine: Option<Docker>,
    brokers: Option<Brokers>,
    policies: Policies,
    compiled: Mutex<HashMap<Digest, Arc<Manifest>>>,
}

impl Sessions {
    pub(crate) fn new(
        store: Store,
        verifier: Verifier,
        material: Arc<Material>,
        trees: Trees,
        engine: Option<Docker>,
        brokers: Option<Brokers>,
        policies: Policies,
    ) -> Self {
        let compiled = Mutex::default();
        Self { store, verifier, material, trees, engine, brokers, policies, compiled }
    }

    /// Raises the fence, or renews the grant at the same epoch.
    pub(crate) async fn fence(
        &self,
        owner: &Owner,
        grant: &Signed,
        manifest: &[u8],
    ) -> Result<Session, Error> {
        let verified: Verified<Grant> = self.verify(grant).map_err(|invalid| Error::Grant {
            reason: grant_reason(invalid.reason()),
            detail: invalid.to_string(),
        })?;
        if verified.session != owner.session {
            let detail = "it is for another session".to_owned();
            return Err(Error::Grant { reason: "GRANT_SESSION_MISMATCH", detail });
        }
        let compiled = self.compile(&verified, manifest)?;
        let host = self.trees.workspaces.get(&verified.workspace);
        let host =
            host.ok_or_else(|| refused("WORKSPACE_UNKNOWN", "this host has no such workspace"))?;
        self.serves(&self.policies.rulebook(&compiled, &verified.tenant)?, host).await?;
        let new = NewSession {
            grant: &verified,
            grant_payload: &grant.payload,
            manifest,
            epoch: owner.epoch,
            node: &owner.node,
        };
        match self.store.fence(&new).await? {
            Fenced::Raised => Ok(Session {
                id: owner.session,
                grant: verified.into_inner(),
                manifest: compiled,
                epoch: owner.epoch,
            }),
            Fenced::Stale => Err(Error::FenceStale),
            Fenced::OtherGrant => Err(Error::Grant {
                reason: "GRANT_CHANGED",
                detail: "a renewal changes nothing but its times".to_owned(),
            }),
        }
    }

    /// Signature, signer and time of anything the gateway signed.
    pub(crate) fn verify<P: Payload>(
        &self,
        signed: &Signed,
    ) -> Result<Verified<P>, receipt::Invalid> {
        let denied = |signing: &receipt::Signing| {
            self.material.denies(&signing.spiffe_id, &signing.serial_hex)
        };
        self.verifier.verify(signed, now_secs(), &denied)
    }

    /// The session, if the caller holds its fence.
    pub(crate) async fn held(&self, owner: &Owner) -> Result<Session, Error> {
        let row = self.store.session(owner.session).await?.ok_or(Error::SessionUnknown)?;
        if row.epoch != owner.epoch || row.node != owner.node {
            return Err(Error::FenceStale);
        }
        self.load(row)
    }

    /// The session as it stands, for what goes on without a caller.
    pub(crate) async fn known(&self, session: SessionId) -> Result<Session, Error> {
        let row = self.store.session(session).await?.ok_or(Error::SessionUnknown)?;
        self.load(row)
    }

    pub(crate) fn workspace(&self, session: &Session) -> Result<&PathBuf, Error> {
        let workspace = self.trees.workspaces.get(&session.grant.workspace);
        workspace.ok_or_else(|| refused("WORKSPACE_UNKNOWN", "this host has no such workspace"))
    }

    pub(crate) fn dependencies(&self) -> &Dependencies {
        &self.trees.dependencies
    }

    /// Everything that decides for the session, as it is now.
    pub(crate) fn rulebook(&self, session: &Session) -> Result<Arc<Rulebook>, Unusable> {
        self.policies.rulebook(&session.manifest, &session.grant.tenant).map(Arc::new)
    }

    /// Whose own signatures count, as it is now.
    pub(crate) fn approvers(&self) -> Arc<Approvers> {
        self.policies.approvers()
    }

    fn load(&self, row: SessionRow) -> Result<Session, Error> {
        let manifest = self.compile(&row.grant, &row.manifest)?;
        let SessionRow { grant, manifest: _, epoch, node: _ } = row;
        Ok(Session { id: grant.session, grant, manifest, epoch })
    }

    /// The bytes must be those that the grant names.
    fn compile(&self, grant: &Grant, bytes: &[u8]) -> Result<Arc<Manifest>, Error> {
        if Digest::of(bytes) != grant.manifest {
            return Err(refused(
                "MANIFEST_MISMATCH",
                "the manifest is not the one that was granted",
            ));
        }
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let known = compiled.get(&grant.manifest).cloned();
        let manifest = match known {
            Some(manifest) => manifest,
            None => {
                let file = format!("{}.yaml", grant.manifest_id);
                let manifest = Manifest::parse(bytes, &file)
                    .map_err(|faults| refused("MANIFEST_INVALID", &faults.to_string()))?;
                if compiled.len() >= COMPILED {
                    compiled.clear();
                }
                let manifest = Arc::new(manifest);
                compiled.insert(grant.manifest, manifest.clone());
                manifest
            }
        };
        if manifest.id != grant.manifest_id {
            return Err(refused(
                "MANIFEST_MISMATCH",
                "the manifest has another id than was granted",
            ));
        }
        Ok(manifest)
    }

    /// Whether this host can do what the manifest describes; nothing is narrowed in silence.
    async fn serves(&self, rulebook: &Rulebook, host: &Path) -> Result<(), Error> {
        let execution = &rulebook.manifest().execution;
        if !execution.servers.is_empty() {
            self.serves_servers()?;
        }
        if execution.mode == Mode::Mount {
            if execution.backend == Backend::None {
                let detail =
                    "execution.mode mount is for commands, and there are none; use snapshot";
                return Err(refused("MODE_UNSUPPORTED", detail));
            }
            let (host, kind) = (host.to_owned(), self.trees.staging);
            tokio::task::spawn_blocking(move || mounts::owner(&host, kind)).await??;
        }
        self.has_dependencies(&execution.dependencies).await?;
        self.serves_network(rulebook, execution.backend)?;
        match execution.backend {
            Backend::None => Ok(()),
            Backend::Oci => self.has_image(execution.image.as_deref().unwrap_or_default()).await,
        }
    }

    /// A server lives beside the calls, and Podman's `/tmp` with limits is one of the run's.
    fn serves_servers(&self) -> Result<(), Error> {
        if self.engine.as_ref().is_some_and(|engine| engine.dialect() == Dialect::Podman) {
            let detail = "this host's engine is Podman, which has no tool servers here; leave \
                          execution.servers out";
            return Err(refused("SERVERS_UNSUPPORTED", detail));
        }
        Ok(())
    }

    /// All of them, and each fit to be mounted.
    async fn has_dependencies(&self, names: &[String]) -> Result<(), Error> {
        for name in names {
            let Some(dir) = self.trees.dependencies.get(name).map(Path::to_owned) else {
                let detail = format!("this host has no dependency {name}");
                return Err(refused("DEPENDENCY_UNKNOWN", &detail));
            };
            let (own, name) = (self.trees.own.clone(), name.clone());
            let looked = move || mounts::dependency::inspect(&name, &dir, &own);
            let looked = tokio::task::spawn_blocking(looked).await?;
            looked.map_err(|unfit| refused("DEPENDENCY_UNSAFE", &unfit.to_string()))?;
        }
        Ok(())
    }

    fn serves_network(&self, rulebook: &Rulebook, backend: Backend) -> Result<(), Error> {
        let unsupported = |detail: &str| Err(refused("NETWORK_UNSUPPORTED", detail));
        match (rulebook.network(), backend) {
            (Ok(None), Backend::None | Backend::Oci) => Ok(()),
            (Ok(Some(_)), Backend::None) => unsupported(
                "without a backend no command runs, so none has a network; deny it or leave it out",
            ),
            (Ok(Some(_)), Backend::Oci) if self.brokers.is_none() => {
                unsupported("commands have no network here; deny it or leave it out")
            }
            (Ok(Some(_)), Backend::Oci) => Ok(()),
            (Err(many), Backend::None | Backend::Oci) => unsupported(&many.to_string()),
        }
    }

    async fn has_image(&self, name: &str) -> Result<(), Error> {
        let Some(engine) = &self.engine else {
            return Err(refused("ENGINE_UNAVAILABLE", "this host has no container engine"));
        };
        let unknown =
            || refused("IMAGE_UNKNOWN", "the engine has no such image, and none is pulled");
        let runtime = engine.has_runtime().await;
        if !runtime.map_err(Error::engine("the engine's runtimes cannot be read"))? {
            let detail = "the engine does not have the runtime of this host's configuration";
            return Err(refused("RUNTIME_UNKNOWN", detail));
        }
        match engine.image(&ImageName::parse(name).ok_or_else(unknown)?).await {
            Ok(_) => Ok(()),
            Err(ImageError::Unknown) => Err(unknown()),
            Err(error @ ImageError::Refused(_)) => {
                Err(refused("IMAGE_REFUSED", &Chain(&error).to_string()))
            }
            Err(ImageError::Engine(error)) => {
                Err(Error::engine("the image cannot be inspected")(error))
            }
        }
    }
}

impl Session {
    pub(crate) fn is_expired(&self) -> bool {
        self.grant.exp <= now_secs()
    }

    pub(crate) fn policy_rev(&self) -> String {
        self.manifest.digest.to_string()
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("trees", &self.trees).finish_non_exhaustive()
    }
}

impl From<Unusable> for Error {
    fn from(unusable: Unusable) -> Self {
        refused("CEILING_UNUSABLE", &unusable.to_string())
    }
}

fn refused(reason: &'static str, detail: &str) -> Error {
    Error::Session { reason, detail: detail.to_owned() }
}

fn grant_reason(invalid: &'static str) -> &'static str {
    match invalid {
        "SIGNATURE_INVALID" => "GRANT_SIGNATURE_INVALID",
        "SIGNER_UNTRUSTED" => "GRANT_SIGNER_UNTRUSTED",
        "SIGNER_DENIED" => "GRANT_SIGNER_DENIED",
        "EXPIRED" => "GRANT_EXPIRED",
        "NOT_YET_VALID" => "GRANT_NOT_YET_VALID",
        _ => "GRANT_PAYLOAD_MALFORMED",
    }
}

/// Unix seconds.
pub(crate) fn now_secs() -> u64 {
    u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap_or(0)
}

/// Unix milliseconds.
pub(crate) fn now_ms() -> i64 {
    let nanos = OffsetDateTime::now_utc().unix_timestamp_nanos();
    i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX)
}
