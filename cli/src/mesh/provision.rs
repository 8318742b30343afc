//! Fills a state directory: authority, certificates, token, manifests, models and settings. What is there and still
//! good stays; secrets are never written twice.
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use acp::token::Token;
use manifest::Manifest;
use toml::Value;
use transport::{Service, TrustDomain};

use super::{
    Argument, Error, Isolation, Layout, Options, models, policy,
    ports::Ports,
    record::Record,
    settings::{self, Facts},
};
use crate::{
    file::{self, Access},
    pki::{Hosts, Named, Store, Subject},
    token::{self, Holder, Role},
};

/// Leaves live 30 days and are renewed by a start in their last third.
const LEAF_DAYS: u32 = 30;
const RENEW_AFTER: Duration = Duration::from_secs(20 * 86_400);
const TOKEN_LIFE: Duration = Duration::from_secs(90 * 86_400);
const TOKEN_MARGIN: Duration = Duration::from_secs(86_400);

/// A manifest that parsed.
pub(crate) struct Reviewed {
    pub(crate) id: String,
    pub(crate) bytes: Vec<u8>,
}

/// Reads manifests as the services will; every fault goes to `faults`.
pub(crate) fn reviewed(paths: &[PathBuf], faults: &mut Vec<Error>) -> Vec<Reviewed> {
    let mut all: Vec<Reviewed> = Vec::new();
    for path in paths {
        match file::read(path) {
            Err(error) => faults.push(error.into()),
            Ok(bytes) => match parse(&path.display().to_string(), bytes) {
                Err(found) => faults.extend(found),
                Ok(manifest) if all.iter().any(|other| other.id == manifest.id) => {
                    faults.push(Error::Argument(Argument::Twice("manifest", manifest.id)));
                }
                Ok(manifest) => all.push(manifest),
            },
        }
    }
    all
}

pub(crate) fn parse(name: &str, bytes: Vec<u8>) -> Result<Reviewed, Vec<Error>> {
    match Manifest::parse(&bytes, name) {
        Ok(manifest) => Ok(Reviewed { id: manifest.id.to_string(), bytes }),
        Err(faults) => {
            Err(faults.as_slice().iter().map(|fault| Error::Manifest(fault.to_string())).collect())
        }
    }
}

pub(crate) fn trust_domain(name: &str) -> Result<TrustDomain, Error> {
    Ok(name.parse().map_err(|_| crate::pki::Error::Name(name.to_owned()))?)
}

/// Everything that one start may have to write.
pub(crate) struct Plan<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) record: &'a Record,
    pub(crate) options: &'a Options,
    pub(crate) manifests: Vec<Reviewed>,
    pub(crate) models: Vec<models::Staged>,
}

impl Plan<'_> {
    pub(crate) fn carry_out(self) -> Result<(), Error> {
        let Self { layout, record, options, manifests, models } = self;
        let isolation = record.isolation;
        directories(layout, isolation)?;
        certificates(layout, isolation, &record.trust_domain)?;
        operator_token(layout, isolation)?;
        for Reviewed { id, bytes } in &manifests {
            let path = layout.manifests().join(format!("{id}.yaml"));
            file::write(&path, bytes, isolation.shown_file(Service::Gateway))?;
        }
        for models::Staged { name, bytes } in &models {
            let path = layout.service(Service::ModelSvc).join(name);
            file::write(&path, bytes, isolation.own_file(Service::ModelSvc))?;
        }
        record.policy.link(layout, isolation)?;
        settings(layout, record, &options.overrides)
    }
}

fn directories(layout: &Layout, isolation: Isolation) -> Result<(), Error> {
    for dir in [layout.client(), layout.auditor(), layout.logs()] {
        file::directory(&dir, Access::PRIVATE_DIR)?;
    }
    for service in Service::ALL {
        for dir in [layout.service(service), layout.tls(service)] {
            file::directory(&dir, isolation.shown_dir(service))?;
        }
        file::directory(&layout.data(service), isolation.own_dir(service))?;
    }
    for dir in [layout.signing(), layout.manifests()] {
        file::directory(&dir, isolation.shown_dir(Service::Gateway))?;
    }
    let models = layout.service(Service::ModelSvc);
    for dir in models::DIRS.map(|dir| models.join(dir)) {
        file::directory(&dir, isolation.shown_dir(Service::ModelSvc))?;
    }
    Ok(())
}

fn certificates(layout: &Layout, isolation: Isolation, domain: &str) -> Result<(), Error> {
    let store = match layout.pki().exists() {
        true => Store::open(&layout.pki())?,
        false => Store::init(&layout.pki(), trust_domain(domain)?)?,
    };
    let instance = || "1".to_owned();
    for service in Service::ALL {
        let subject = Subject::Service { service, instance: instance() };
        identity(&store, &subject, &layout.tls(service), isolation.own_file(service))?;
    }
    let receipts = Subject::Receipts { instance: instance() };
    identity(&store, &receipts, &layout.signing(), isolation.own_file(Service::Gateway))?;
    let auditor = Subject::Auditor { name: "local".to_owned() };
    identity(&store, &auditor, &layout.auditor(), Access::PRIVATE)?;
    Ok(file::write(&layout.client_ca(), &store.client_bundle()?, Access::PRIVATE)?)
}

/// The files of `subject`, unless those that are there live long enough.
pub(crate) fn identity(
    store: &Store,
    subject: &Subject,
    dir: &Path,
    access: Access,
) -> Result<(), Error> {
    let certificate = match subject {
        Subject::Receipts { .. } => dir.join("receipt.crt"),
        Subject::Service { .. } | Subject::Client { .. } | Subject::Auditor { .. } => {
            dir.join("tls.crt")
        }
    };
    if is_young(&certificate) {
        return Ok(());
    }
    let mut files = store.issue(subject, &Hosts::default(), LEAF_DAYS)?;
    // The certificate comes last: an interrupted renewal is done again.
    files.sort_by_key(|file| dir.join(file.name) == certificate);
    for Named { name, bytes } in &files {
        file::write(&dir.join(name), bytes, access)?;
    }
    Ok(())
}

fn is_young(path: &Path) -> bool {
    let written = fs::symlink_metadata(path).and_then(|found| found.modified());
    written.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age < RENEW_AFTER))
}

fn operator_token(layout: &Layout, isolation: Isolation) -> Result<(), Error> {
    let (path, tokens) = (layout.token(), layout.tokens());
    if path.exists() {
        let kept = Token::parse(file::read_text(&path)?.trim());
        if kept.is_ok_and(|token| token::holds(&tokens, &token, TOKEN_MARGIN).unwrap_or(false)) {
            return Ok(());
        }
    }
    let holder = Holder {
        tenant: policy::TENANT.to_owned(),
        subject: "operator".to_owned(),
        roles: vec![Role::Operator],
        life: TOKEN_LIFE,
    };
    let minted = token::create(&tokens, &holder, isolation.own_file(Service::Gateway))?;
    Ok(file::write(&path, minted.reveal().as_bytes(), Access::PRIVATE)?)
}

fn settings(
    layout: &Layout,
    record: &Record,
    overrides: &[(Service, String, Value)],
) -> Result<(), Error> {
    let Record {
        trust_domain,
        isolation,
        ports,
        engine,
        workspaces,
        dependencies,
        default_manifest,
        policy,
        schema_version: _,
    } = record;
    let facts = Facts {
        layout,
        ports: Ports::clone(ports),
        trust_domain,
        isolation: *isolation,
        engine,
        workspaces,
        dependencies,
        default_manifest,
        policy,
    };
    for service in Service::ALL {
        let text = settings::table(&facts, service, overrides).to_string();
        file::write(&layout.config(service), text.as_bytes(), isolation.shown_file(service))?;
    }
    Ok(())
}
