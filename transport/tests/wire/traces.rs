//! Trace context through two hops.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use proto::audit::v1::CheckpointRequest;
use tracing_subscriber::{layer::SubscriberExt as _, util::SubscriberInitExt as _};
use transport::Service;

use crate::{
    ledger::Ledger,
    setup::{Setup, soon},
};

#[tokio::test]
async fn an_onward_call_belongs_to_the_trace_of_the_request_it_serves() {
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    tracing_subscriber::registry()
        .with(layer)
        .try_init()
        .expect("no other test installs a subscriber");

    let below = Setup::new().await;
    let above =
        Setup::with(Ledger::new(Some(below.channel(Service::AgentSvc))), |server| server).await;
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let mut request = soon(CheckpointRequest {});
    let context = format!("00-{trace}-{parent}-01");
    request.metadata_mut().insert("traceparent", context.parse().unwrap());
    let answer = above.client(Service::Gateway).checkpoint(request).await.unwrap().into_inner();
    let seen = String::from_utf8(answer.root).unwrap();
    let parts: Vec<&str> = seen.split('-').collect();
    assert_eq!((parts[0], parts[1], parts[3]), ("00", trace, "01"), "{seen}");
    assert_ne!(parts[2], parent, "the onward call has a span of its own");
}
