//! Every method of the descriptor set against every kind of caller over real mTLS. What may pass is read from the
//! services' own tables; a method that no table lists fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use e2e::{Rig, Spec, Turn, manifest, within};
use harness::mesh::Layout;
use harness::pki::{Hosts, Store, Subject};
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use time::{Duration, OffsetDateTime};
use transport::authz::{Caller, Row};
use transport::issue::{Authority, DevPki, Issued, LeafSpec};
use transport::{Identity, Service};

/// How a call ended, as far as admission is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    /// The connection never came about.
    NoHandshake,
    /// The method table said no.
    NotAllowed,
    /// A handler saw the request, whatever it made of it.
    Handler,
}

/// One kind of caller: its name, its certificate and who it is where it is somebody.
struct Visitor {
    name: &'static str,
    issued: Option<Issued>,
    is: Option<Identity>,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_meets_exactly_its_callers() -> Result<()> {
    let rig = Rig::start(Spec::new(manifest("matrix"), vec![Turn::Say("nothing")])).await?;
    let callers = callers(&rig)?;
    let mut faults = Vec::new();
    for (listener, addr, rows) in listeners(&rig)? {
        for caller in &callers {
            let connection = connect(&rig, addr, caller.issued.as_ref()).await;
            for Row { method, callers: listed } in &rows {
                let met = match &connection {
                    Ok(sender) => call(sender.clone(), method).await,
                    Err(_) => Met::NoHandshake,
                };
                let wanted = expected(listener, caller.is.as_ref(), listed);
                if !wanted.contains(&met) {
                    faults.push(format!(
                        "{} calls {method} at {listener}: {met:?}, not {wanted:?}",
                        caller.name
                    ));
                }
            }
        }
    }
    assert_eq!(faults, Vec::<String>::new());
    Ok(())
}

#[test]
fn every_method_of_the_descriptor_set_has_one_row() -> Result<()> {
    let described = described()?;
    let listed: Vec<String> =
        tables().into_iter().flat_map(|(_, rows)| rows).map(|row| row.method.to_owned()).collect();
    let unique: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(unique, described);
    assert_eq!(listed.len(), described.len(), "a method is listed twice");
    Ok(())
}

/// The calls of docs/ARCHITECTURE.md: no service may call what is not in it.
#[test]
fn the_tables_allow_only_the_calls_of_the_architecture() {
    let calls: BTreeMap<&str, BTreeSet<String>> = tables()
        .into_iter()
        .map(|(service, rows)| {
            let callers = rows
                .iter()
                .flat_map(|row| row.callers)
                .map(|caller| format!("{caller:?}"))
                .collect();
            (service.as_str(), callers)
        })
        .collect();
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let wanted = BTreeMap::from([
        ("agent-svc", of(&["Service(Gateway)"])),
        ("sandbox-svc", of(&["Service(AgentSvc)"])),
        ("model-svc", of(&["Service(AgentSvc)"])),
        (
            "audit-svc",
            of(&[
                "Service(Gateway)",
                "Service(AgentSvc)",
                "Service(SandboxSvc)",
                "Service(ModelSvc)",
                "Auditor",
            ]),
        ),
    ]);
    assert_eq!(calls, wanted);
}

/// What may happen: refused certificates never finish a handshake, or their first request fails with the connection.
fn expected(listener: &str, caller: Option<&Identity>, listed: &[Caller]) -> Vec<Met> {
    let right_kind = matches!(
        (listener.ends_with("auditors"), caller),
        (false, Some(Identity::Service { .. })) | (true, Some(Identity::Auditor { .. }))
    );
    let Some(identity) = caller.filter(|_| right_kind) else { return vec![Met::NoHandshake] };
    let allowed = listed.iter().any(|row| match (row, identity) {
        (Caller::Service(wanted), Identity::Service { service, .. }) => wanted == service,
        (Caller::AnyService, Identity::Service { .. })
        | (Caller::Auditor, Identity::Auditor { .. }) => true,
        _ => false,
    });
    vec![if allowed { Met::Handler } else { Met::NotAllowed }]
}

fn tables() -> Vec<(Service, Vec<Row>)> {
    let copy = |rows: &[Row]| {
        rows.iter().map(|row| Row { method: row.method, callers: row.callers }).collect()
    };
    vec![
        (Service::AgentSvc, copy(agent_svc::CALLERS)),
        (Service::SandboxSvc, copy(sandbox_svc::CALLERS)),
        (Service::ModelSvc, copy(model_svc::CALLERS)),
        (Service::AuditSvc, copy(audit_svc::CALLERS)),
    ]
}

fn described() -> Result<BTreeSet<String>> {
    let set = prost_types::FileDescriptorSet::decode(proto::DESCRIPTORS)?;
    let mut methods = BTreeSet::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                methods.insert(format!("/{}.{}/{}", file.package(), service.name(), method.name()));
            }
        }
    }
    Ok(methods)
}

fn listeners(rig: &Rig) -> Result<Vec<(&'static str, SocketAddr, Vec<Row>)>> {
    const HEALTH: Row =
        Row { method: "/grpc.health.v1.Health/Check", callers: &[Caller::AnyService] };
    let mut all = Vec::new();
    for (service, mut rows) in tables() {
        if service == Service::AuditSvc {
            let again =
                rows.iter().map(|row| Row { method: row.method, callers: row.callers }).collect();
            let addr = harness::mesh::Known::read(rig.mesh.layout().root())?.audit;
            all.push(("audit-svc auditors", addr, again));
        }
        rows.push(HEALTH);
        all.push((service.as_str(), rig.endpoint(service)?.to_string().parse()?, rows));
    }
    Ok(all)
}

fn callers(rig: &Rig) -> Result<Vec<Visitor>> {
    let store = rig.store()?;
    let foreign = DevPki::new(store.domain().clone())?;
    let services = authority(rig.mesh.layout(), "services")?;
    let now = OffsetDateTime::now_utc();
    let leaf = |uris: &[&str]| -> LeafSpec {
        let mut spec = foreign.leaf("svc/agent-svc/suite");
        spec.uri_sans = uris.iter().map(|uri| (*uri).to_owned()).collect();
        spec
    };
    let agent = format!("spiffe://{}/svc/agent-svc/suite", store.domain());
    let gateway = format!("spiffe://{}/svc/gateway/suite", store.domain());
    let mut expired = leaf(&[&agent]);
    expired.not_before = now - Duration::days(2);
    expired.not_after = now - Duration::days(1);
    let mut authority_as_leaf = leaf(&[&agent]);
    authority_as_leaf.is_ca = true;

    let mut all = vec![Visitor { name: "nobody", issued: None, is: None }];
    for service in Service::ALL {
        let subject = Subject::Service { service, instance: "suite".to_owned() };
        let is = Identity::parse(
            &format!("spiffe://{}/svc/{service}/suite", store.domain()),
            store.domain(),
        )?;
        all.push(Visitor {
            name: service.as_str(),
            issued: Some(issued(&store, &subject)?),
            is: Some(is),
        });
    }
    let auditor = Subject::Auditor { name: "suite".to_owned() };
    let is =
        Identity::parse(&format!("spiffe://{}/auditor/suite", store.domain()), store.domain())?;
    all.push(Visitor { name: "an auditor", issued: Some(issued(&store, &auditor)?), is: Some(is) });
    let client = Subject::Client { tenant: "default".to_owned(), name: "suite".to_owned() };
    all.push(Visitor { name: "a client", issued: Some(issued(&store, &client)?), is: None });
    for (name, issued) in [
        ("a service of another authority", foreign.service(Service::AgentSvc, "suite")?),
        (
            "another trust domain",
            services.issue(&leaf(&["spiffe://elsewhere.test/svc/agent-svc/suite"]))?,
        ),
        ("no name", services.issue(&leaf(&[]))?),
        ("two names", services.issue(&leaf(&[&agent, &gateway]))?),
        (
            "a name that only begins like a service",
            services.issue(&leaf(&[&agent.replace("agent-svc", "agent-svc-evil")]))?,
        ),
        ("an expired certificate", services.issue(&expired)?),
        ("an authority", services.issue(&authority_as_leaf)?),
        ("a receipt signer", foreign_receipts(&store)?),
    ] {
        all.push(Visitor { name, issued: Some(issued), is: None });
    }
    Ok(all)
}

fn foreign_receipts(store: &Store) -> Result<Issued> {
    let files =
        store.issue(&Subject::Receipts { instance: "suite".to_owned() }, &Hosts::default(), 1)?;
    pair(files.iter().map(|file| (file.name, file.bytes.as_slice())), "receipt.crt", "receipt.key")
}

fn issued(store: &Store, subject: &Subject) -> Result<Issued> {
    let files = store.issue(subject, &Hosts::default(), 1)?;
    pair(files.iter().map(|file| (file.name, file.bytes.as_slice())), "tls.crt", "tls.key")
}

fn pair<'a>(
    files: impl Iterator<Item = (&'static str, &'a [u8])>,
    cert: &str,
    key: &str,
) -> Result<Issued> {
    let files: BTreeMap<&str, &[u8]> = files.collect();
    let text = |name: &str| -> Result<String> {
        Ok(std::str::from_utf8(files.get(name).with_context(|| format!("{name} was issued"))?)?
            .to_owned())
    };
    Ok(Issued { cert_pem: text(cert)?, key_pem: text(key)? })
}

fn authority(layout: &Layout, name: &str) -> Result<Authority> {
    let dir = layout.pki().join(name);
    let read = |file: &str| {
        std::fs::read_to_string(dir.join(file)).with_context(|| format!("{name}/{file}"))
    };
    Ok(Authority::from_pem(&read("ca.crt")?, &read("ca.key")?)?)
}

type Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

/// A connection whose peer has answered once: with TLS 1.3 a refusal arrives only after the client's own handshake.
async fn connect(rig: &Rig, addr: SocketAddr, issued: Option<&Issued>) -> Result<Sender> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in
        CertificateDer::pem_slice_iter(&std::fs::read(rig.mesh.layout().client_ca())?)
    {
        roots.add(certificate?)?;
    }
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_protocol_versions(&[&rustls::version::TLS13])?
    .with_root_certificates(roots);
    let mut config = match issued {
        None => builder.with_no_client_auth(),
        Some(Issued { cert_pem, key_pem }) => {
            let chain = CertificateDer::pem_slice_iter(cert_pem.as_bytes())
                .collect::<Result<Vec<_>, _>>()?;
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key_pem.as_bytes())?)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = tokio::net::TcpStream::connect(addr).await?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let tls =
        within("a handshake", connector.connect(ServerName::try_from("localhost")?, tcp)).await?;
    let io = hyper_util::rt::TokioIo::new(tls);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io).await?;
    #[expect(
        clippy::disallowed_methods,
        reason = "it ends with the connection, which the test drops"
    )]
    tokio::spawn(connection);
    within("the first answer", sender.send_request(request("/no.such.Service/Method")?)).await?;
    Ok(sender)
}

async fn call(mut sender: Sender, method: &str) -> Met {
    let Ok(request) = request(method) else { return Met::NoHandshake };
    let Ok(response) = within(method, sender.send_request(request)).await else {
        return Met::NoHandshake;
    };
    let (head, body) = response.into_parts();
    let mut headers = head.headers;
    if !headers.contains_key("grpc-status") {
        // A stream that stays open was let in.
        let trailers =
            tokio::time::timeout(std::time::Duration::from_secs(5), body.collect()).await;
        match trailers {
            Ok(Ok(collected)) => headers.extend(collected.trailers().cloned().unwrap_or_default()),
            Ok(Err(_)) | Err(_) => return Met::Handler,
        }
    }
    let by_table = tonic::Status::from_header_map(&headers).is_some_and(|status| {
        let fault = transport::Fault::from(status);
        fault.reason == "METHOD_NOT_ALLOWED"
    });
    if by_table { Met::NotAllowed } else { Met::Handler }
}

fn request(method: &str) -> Result<http::Request<Full<Bytes>>> {
    Ok(http::Request::post(format!("https://localhost{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from_static(&[0, 0, 0, 0, 0])))?)
}
