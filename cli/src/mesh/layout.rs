//! Where everything lies below a state directory. Paths only.
//!
//! What a service reads belongs to root (or to whoever runs the mesh) and only its `state` directory is the
//! service's own, so that a taken-over service can not plant a link where the next start writes.
use std::path::{Path, PathBuf};

use transport::Service;

#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the mesh remembers of its last start.
    #[must_use]
    pub fn record(&self) -> PathBuf {
        self.root.join("mesh.json")
    }

    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// The processes of the last start.
    #[must_use]
    pub fn pids(&self) -> PathBuf {
        self.root.join("pids")
    }

    #[must_use]
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// What people's clients need: the CA, a token, an auditor's certificate.
    #[must_use]
    pub fn client(&self) -> PathBuf {
        self.root.join("client")
    }

    #[must_use]
    pub fn token(&self) -> PathBuf {
        self.client().join("token")
    }

    #[must_use]
    pub fn client_ca(&self) -> PathBuf {
        self.client().join("ca.crt")
    }

    /// A TLS directory with an auditor's identity.
    #[must_use]
    pub fn auditor(&self) -> PathBuf {
        self.client().join("auditor")
    }

    /// Programs, for services that can not reach where they were built.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        self.root.join("bin")
    }

    #[must_use]
    pub fn service(&self, service: Service) -> PathBuf {
        self.root.join(service.as_str())
    }

    #[must_use]
    pub fn config(&self, service: Service) -> PathBuf {
        self.service(service).join("config.toml")
    }

    #[must_use]
    pub fn tls(&self, service: Service) -> PathBuf {
        self.service(service).join("tls")
    }

    /// The service's own data: the only place it may write.
    #[must_use]
    pub fn data(&self, service: Service) -> PathBuf {
        self.service(service).join("state")
    }

    /// Where sandbox-svc keeps a directory for each run that has a private copy.
    #[must_use]
    pub fn environments(&self) -> PathBuf {
        self.data(Service::SandboxSvc).join("environments")
    }

    /// Where sandbox-svc looks for a tenant's ceiling: a link to the administrator's own file.
    #[must_use]
    pub fn tenant_ceilings(&self) -> PathBuf {
        self.service(Service::SandboxSvc).join("tenant-ceilings")
    }

    #[must_use]
    pub fn signing(&self) -> PathBuf {
        self.service(Service::Gateway).join("signing")
    }

    #[must_use]
    pub fn tokens(&self) -> PathBuf {
        self.service(Service::Gateway).join("tokens.json")
    }

    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.service(Service::Gateway).join("manifests")
    }

    #[must_use]
    pub fn models(&self) -> PathBuf {
        self.service(Service::ModelSvc).join("models.toml")
    }

    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.root.join("log")
    }

    #[must_use]
    pub fn log(&self, service: Service) -> PathBuf {
        self.logs().join(format!("{}.log", service.as_str()))
    }
}
