//! The life of a process: configuration, telemetry, bind, serve until a signal, drain within a limit. It decides exit codes, nothing else.

use std::{
    error::Error as StdError, io, net::SocketAddr, pin::pin, process::ExitCode, time::Duration,
};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    Chain, Context, Exit, Service, Validate, admin::Admin, config, material, server, telemetry,
    telemetry::Telemetry,
};

/// A service that has its addresses and can be served.
pub trait Bound: Send + 'static {
    /// Why serving ended early.
    type Error: StdError + Send + Sync + 'static;

    /// Each listener's flag name and real address.
    fn addrs(&self) -> Vec<(&'static str, SocketAddr)>;

    /// Serves until `shutdown`, then ends in good order within the context's limit.
    fn serve(
        self,
        shutdown: CancellationToken,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Beyond the drain limit, for what a service has to close after its last request.
const CLOSING: Duration = Duration::from_secs(2);

/// Runs `service` from configuration to exit code: 0 stopped as asked, 1 failed, 2 configuration is wrong. A failure is one
/// line on standard error.
pub fn main<C, B, E, F>(service: Service, bind: impl FnOnce(C, Context) -> F) -> ExitCode
where
    C: clap::Parser + Validate,
    B: Bound,
    E: StdError + Send + Sync + 'static,
    F: Future<Output = Result<B, E>>,
{
    let config = match config::load::<C>(service, std::env::args_os()) {
        Ok(config) => config,
        Err(exit) => return end(service, exit),
    };
    match run(service, config, bind) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&format!("harness-{service}: {}", Chain(&failure)));
            ExitCode::FAILURE
        }
    }
}

fn end(service: Service, exit: Exit) -> ExitCode {
    match exit {
        Exit::Done(text) => {
            #[expect(
                clippy::print_stdout,
                reason = "help and the verdict of --check-config are what was asked for"
            )]
            {
                print!("{text}");
            }
            ExitCode::SUCCESS
        }
        Exit::Faulty(faults) => {
            for fault in faults {
                say(&format!("harness-{service}: {fault}"));
            }
            ExitCode::from(2)
        }
    }
}

#[expect(clippy::print_stderr, reason = "a process that does not run has no log")]
fn say(line: &str) {
    eprintln!("{line}");
}

fn run<C, B, E, F>(
    service: Service,
    config: C,
    bind: impl FnOnce(C, Context) -> F,
) -> Result<(), Failure>
where
    C: Validate,
    B: Bound,
    E: StdError + Send + Sync + 'static,
    F: Future<Output = Result<B, E>>,
{
    // Libraries that bring no provider of their own look for this one. An earlier one is the same.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        warn!("a crypto provider is installed already");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::Runtime)?;
    let result = runtime.block_on(Box::pin(observed(service, config, bind)));
    runtime.shutdown_timeout(CLOSING);
    result
}

async fn observed<C, B, E, F>(
    service: Service,
    config: C,
    bind: impl FnOnce(C, Context) -> F,
) -> Result<(), Failure>
where
    C: Validate,
    B: Bound,
    E: StdError + Send + Sync + 'static,
    F: Future<Output = Result<B, E>>,
{
    let telemetry = telemetry::start(service, config.transport())?;
    let result = live(service, config, bind).await;
    flush(telemetry).await;
    result
}

async fn flush(telemetry: Telemetry) {
    match tokio::task::spawn_blocking(|| telemetry.stop()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(error = %Chain(&error), "last traces were not exported"),
        Err(error) => warn!(error = %Chain(&error), "last traces were not exported"),
    }
}

async fn live<C, B, E, F>(
    service: Service,
    config: C,
    bind: impl FnOnce(C, Context) -> F,
) -> Result<(), Failure>
where
    C: Validate,
    B: Bound,
    E: StdError + Send + Sync + 'static,
    F: Future<Output = Result<B, E>>,
{
    let args = config.transport().clone();
    let context = Context::new(config::open(service, &args)?, args.drain_timeout);
    let mut stop = Stop::listen()?;
    let hangup = signal(SignalKind::hangup()).map_err(Failure::Signals)?;
    let watch =
        context.material.clone().watch(args.tls_reload_interval, hangup, context.shutdown.clone());
    context.tracker.spawn(watch);

    // Probes are answered from before `bind` until after the drain.
    let probing = CancellationToken::new();
    let _last = probing.clone().drop_guard();
    context.ready.set("bound", false);
    if let Some(addr) = args.admin_listen {
        let admin = Admin::bind(&context, addr).await?;
        info!(listener = "admin-listen", addr = %admin.addr(), "listening");
        context.tracker.spawn(admin.serve(probing.clone()));
    }

    let bound = tokio::select! {
        bound = bind(config, context.clone()) => bound.map_err(|error| Failure::Bind(Box::new(error)))?,
        signal = stop.next() => {
            info!(signal, "stopped before it served");
            return Ok(());
        }
    };
    for (listener, addr) in bound.addrs() {
        info!(listener, %addr, "listening");
    }
    context.ready.set("bound", true);
    serve(bound, &context, &mut stop, probing).await
}

async fn serve<B: Bound>(
    bound: B,
    context: &Context,
    stop: &mut Stop,
    probing: CancellationToken,
) -> Result<(), Failure> {
    let mut serving = pin!(bound.serve(context.shutdown.clone()));
    let signal = tokio::select! {
        ended = &mut serving => {
            context.shutdown.cancel();
            return ended.map_err(|error| Failure::Serve(Box::new(error))).and(Err(Failure::Ended));
        }
        signal = stop.next() => signal,
    };
    info!(signal, limit = ?context.drain_timeout, "stopping");
    context.shutdown.cancel();
    let finish = async {
        let served = serving.await.map_err(|error| Failure::Serve(Box::new(error)));
        probing.cancel();
        context.tracker.close();
        context.tracker.wait().await;
        served
    };
    tokio::select! {
        finished = tokio::time::timeout(context.drain_timeout + CLOSING, finish) => match finished {
            Ok(served) => {
                info!("stopped");
                served
            }
            Err(_) => Err(Failure::Slow),
        },
        signal = stop.next() => {
            warn!(signal, "stopped at once");
            Err(Failure::Hurried)
        }
    }
}

/// The signals that ask a process to stop.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn listen() -> Result<Self, Failure> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(Failure::Signals)?,
            interrupt: signal(SignalKind::interrupt()).map_err(Failure::Signals)?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Why a process ends with status 1.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no runtime can be made")]
    Runtime(#[source] io::Error),
    #[error("signals cannot be received")]
    Signals(#[source] io::Error),
    #[error("telemetry does not start")]
    Telemetry(#[from] telemetry::Error),
    #[error("the tls directory is not usable")]
    Material(#[from] material::Error),
    #[error(transparent)]
    Server(#[from] server::Error),
    #[error(transparent)]
    Bind(Box<dyn StdError + Send + Sync>),
    #[error(transparent)]
    Serve(Box<dyn StdError + Send + Sync>),
    #[error("it stopped serving without being asked to")]
    Ended,
    #[error(
        "requests or tasks were still open at the drain limit; raise --drain-timeout if they need longer"
    )]
    Slow,
    #[error("stopped at once by a second signal")]
    Hurried,
}
