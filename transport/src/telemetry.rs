//! Where log lines, spans and counters of a process go; never what they say.

use std::{sync::OnceLock, time::Duration};

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkError,
    trace::{Sampler, SdkTracerProvider},
};
use tracing_subscriber::{
    EnvFilter, Layer,
    layer::SubscriberExt as _,
    util::{SubscriberInitExt as _, TryInitError},
};

use crate::{Args, Service, args::LogFormat};

/// A dead collector must not hold up the end of a process.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// Request times from 1 ms to a minute.
const SECONDS: [f64; 11] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0];

/// These report every frame of their own traffic, traces that are being exported among it.
/// What a tool server says is in the lines of `rmcp`, and not for a log.
const QUIET: [&str; 6] =
    ["h2=warn", "hyper=warn", "hyper_util=warn", "rmcp=off", "tonic=warn", "tower=warn"];

/// Owns what has to be flushed at the end.
#[derive(Debug)]
pub(crate) struct Telemetry {
    provider: SdkTracerProvider,
}

/// Installs the log, the tracer and the metrics of this process. Call it once, inside the runtime.
pub(crate) fn start(service: Service, args: &Args) -> Result<Telemetry, Error> {
    recorder()?;
    let provider = provider(service, args)?;
    let tracer = provider.tracer("harness");
    let lines = match args.log_format {
        LogFormat::Json => {
            tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr).boxed()
        }
        LogFormat::Text => tracing_subscriber::fmt::layer().with_writer(std::io::stderr).boxed(),
    };
    tracing_subscriber::registry()
        .with(filter(&args.log_filter)?)
        .with(lines)
        .with(tracing_opentelemetry::layer().with_tracer(tracer))
        .try_init()?;
    Ok(Telemetry { provider })
}

/// What the operator asked for; what it says about a target stands over ours.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, Error> {
    let all = QUIET
        .into_iter()
        .chain(text.split(','))
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join(",");
    Ok(EnvFilter::builder().parse(all)?)
}

/// Trace ids are made also when nothing is exported, so that log lines of one request can be found in every service.
fn provider(service: Service, args: &Args) -> Result<SdkTracerProvider, Error> {
    let resource =
        Resource::builder_empty().with_service_name(format!("harness-{service}")).build();
    let builder = SdkTracerProvider::builder().with_resource(resource);
    let Some(endpoint) = &args.otlp_endpoint else {
        return Ok(builder
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOff)))
            .build());
    };
    let exporter =
        SpanExporter::builder().with_tonic().with_endpoint(endpoint.to_string()).build()?;
    let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOn));
    Ok(builder.with_sampler(sampler).with_batch_exporter(exporter).build())
}

impl Telemetry {
    /// Sends what is still held.
    pub(crate) fn stop(self) -> Result<(), OTelSdkError> {
        self.provider.shutdown_with_timeout(FLUSH_LIMIT)
    }
}

/// The process's metrics. The `metrics` macros write to one recorder for the whole process, so that this is one as well.
pub(crate) fn recorder() -> Result<&'static PrometheusHandle, Error> {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    if let Some(handle) = RECORDER.get() {
        return Ok(handle);
    }
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?;
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    Ok(RECORDER.get_or_init(|| {
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another recorder is installed, /metrics stays empty");
        }
        handle
    }))
}

/// Why telemetry does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The exporter cannot be made.
    #[error("traces cannot be exported; correct --otlp-endpoint, such as http://127.0.0.1:4317")]
    Exporter(#[from] ExporterBuildError),
    /// The filter cannot be read.
    #[error("the log filter cannot be read; correct --log-filter, such as info,transport=debug")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Somebody was faster.
    #[error("a log is installed already")]
    Installed(#[from] TryInitError),
    /// The buckets are no buckets.
    #[error("metrics cannot be recorded")]
    Metrics(#[from] BuildError),
}
