//! Probes over plain HTTP.

use transport::Service;

use crate::setup::{LIMIT, Setup, append, metric};

#[tokio::test]
async fn readiness_names_what_is_missing() {
    let setup = Setup::new().await;
    assert_eq!(setup.get("/livez").await, (200, "alive\n".to_owned()));
    assert_eq!(setup.get("/readyz").await, (200, "ready\n".to_owned()));
    setup.context.ready.set("audit", false);
    setup.context.ready.set("store", false);
    assert_eq!(setup.get("/readyz").await, (503, "not ready: audit, store\n".to_owned()));
    assert_eq!(setup.get("/livez").await, (200, "alive\n".to_owned()));
    setup.context.ready.set("audit", true);
    setup.context.ready.set("store", true);
    assert_eq!(setup.get("/readyz").await, (200, "ready\n".to_owned()));
    setup.context.shutdown.cancel();
    assert_eq!(setup.get("/readyz").await, (503, "not ready: running\n".to_owned()));
    assert_eq!(setup.get("/version").await.0, 404);
}

#[tokio::test]
async fn the_health_service_says_what_readiness_says() {
    let setup = Setup::new().await;
    let channel = setup.channel(Service::SandboxSvc);
    channel.probe(LIMIT).await.unwrap();
    setup.context.ready.set("store", false);
    let refused = async {
        loop {
            if let Err(fault) = channel.probe(LIMIT).await {
                return fault.reason;
            }
        }
    };
    assert_eq!(tokio::time::timeout(LIMIT, refused).await.unwrap(), "PEER_NOT_SERVING");
}

#[tokio::test]
async fn metrics_are_prometheus_text_with_bounded_labels() {
    let setup = Setup::new().await;
    append(&mut setup.client(Service::AgentSvc)).await.unwrap();
    append(&mut setup.client(Service::ModelSvc)).await.unwrap_err();
    let (status, text) = setup.get("/metrics").await;
    assert_eq!(status, 200);
    let append = "/harness.audit.v1.AuditService/Append";
    for code in ["OK", "PERMISSION_DENIED"] {
        let series = format!("harness_grpc_requests_total{{method=\"{append}\",code=\"{code}\"}}");
        assert!(metric(&text, &series) >= 1.0, "{series} in {text}");
    }
    let seconds = format!("harness_grpc_request_seconds_count{{method=\"{append}\"}}");
    assert!(metric(&text, &seconds) >= 2.0, "{text}");
    assert!(metric(&text, "harness_tls_cert_not_after_seconds") > 1e9, "{text}");
    assert!(text.contains("harness_tls_bundle_sha256{sha256=\""), "{text}");
    assert!(text.contains("harness_tls_material_age_seconds"), "{text}");
}
