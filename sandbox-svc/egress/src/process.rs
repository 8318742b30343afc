//! The process around a broker: it gives up what it could still get, takes its work over, and ends with whoever
//! started it. It refuses to run with rights.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, geteuid, getgid, getrlimit, getuid,
    set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use crate::broker::Broker;
use crate::handover::{Handover, NotHandedOver};
use crate::world::System;

/// Resolvers that do not answer occupy a thread each.
const RESOLVERS: usize = 8;
const DESCRIPTORS: u64 = 512;

#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("a broker does not run as root or with a capability")]
    Privileged,
    #[error("the only argument is the number of a user")]
    Arguments,
    #[error("the kernel does not take away what a broker must not have")]
    Kernel(#[from] rustix::io::Errno),
    #[error(transparent)]
    Work(#[from] NotHandedOver),
    #[error("the broker cannot run")]
    Runtime(#[from] std::io::Error),
}

/// The whole process. Its exit status is 0, 1 when the host does not let it run, 2 for work that is not one, 3 when it
/// was started with rights.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ended::Kernel(_) | Ended::Runtime(_)) => ExitCode::from(1),
        Err(Ended::Work(_) | Ended::Arguments) => ExitCode::from(2),
        Err(Ended::Privileged) => ExitCode::from(3),
    }
}

fn run() -> Result<(), Ended> {
    // Before any other thread is there: these hold for this one and for those that come from it.
    give_up(user()?)?;
    let Handover { config, listener, lifeline } = Handover::take(std::io::stdin().as_fd())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(RESOLVERS)
        .build()?;
    let done = runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let ears = pipe::Sender::from_owned_fd(std::io::stdout().as_fd().try_clone_to_owned()?)?;
        let stop = CancellationToken::new();
        let broker = Broker::new(&config, System, ears, stop.clone());
        let (done, ()) = tokio::join!(let_go(lifeline, &stop), broker.run(listener));
        done
    });
    // A resolver that hangs holds nobody up.
    runtime.shutdown_background();
    Ok(done?)
}

/// Stops the broker when the other end is closed; whatever else comes is not for us either.
async fn let_go(lifeline: UnixStream, stop: &CancellationToken) -> std::io::Result<()> {
    lifeline.set_nonblocking(true)?;
    let mut lifeline = tokio::net::UnixStream::from_std(lifeline)?;
    let mut byte = [0];
    tokio::select! {
        read = lifeline.read(&mut byte) => drop(read),
        () = stop.cancelled() => (),
    }
    stop.cancel();
    Ok(())
}

/// What is still to be had is given away, to the user of the only argument where that may be chosen, and then looked
/// at again.
fn give_up(user: Option<u32>) -> Result<(), Ended> {
    set_no_new_privs(true)?;
    let has = capabilities(None)?.effective;
    if let Some(user) = user {
        if has.contains(CapabilitySet::SETGID) {
            let group = Gid::from_raw(user);
            set_thread_groups(&[])?;
            set_thread_res_gid(group, group, group)?;
        }
        if has.contains(CapabilitySet::SETUID) {
            let user = Uid::from_raw(user);
            set_thread_res_uid(user, user, user)?;
        }
    }
    let none = CapabilitySet::empty();
    clear_ambient_capability_set()?;
    if !getuid().is_root() {
        set_capabilities(
            None,
            CapabilitySets { effective: none, permitted: none, inheritable: none },
        )?;
    }
    // A change of user undoes it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let most = |resource, most: u64| {
        let hard = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(most);
        setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })
    };
    most(Resource::Core, 0)?;
    most(Resource::Fsize, 0)?;
    most(Resource::Nofile, DESCRIPTORS)?;
    let has = capabilities(None)?;
    let root = getuid().is_root() || geteuid().is_root() || getgid().is_root();
    if root || has.effective != none || has.permitted != none || has.inheritable != none {
        return Err(Ended::Privileged);
    }
    Ok(())
}

/// The number after the program's name, if there is one.
fn user() -> Result<Option<u32>, Ended> {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (None, _) => Ok(None),
        (Some(user), None) => {
            let user = user.to_str().and_then(|text| text.parse().ok()).filter(|user| *user > 0);
            user.map(Some).ok_or(Ended::Arguments)
        }
        (Some(_), Some(_)) => Err(Ended::Arguments),
    }
}
