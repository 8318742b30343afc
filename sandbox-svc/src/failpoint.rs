//! Named places where a debug build can be told to die, so that tests can kill the service at each of them.
//! A release build has none.

/// Where this process dies, if anywhere.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failpoint(Inner);

#[derive(Debug, Clone, Default)]
enum Inner {
    #[default]
    Off,
    /// Where it is killed, the first time.
    #[cfg(debug_assertions)]
    Kill(std::sync::Arc<str>),
    /// Is killed at the n-th place that it passes, whatever its name.
    #[cfg(debug_assertions)]
    KillAt(std::sync::Arc<std::sync::atomic::AtomicUsize>),
    /// Stops at the n-th place instead, as a kill there would.
    #[cfg(test)]
    StopAt(std::sync::Arc<std::sync::atomic::AtomicUsize>),
    /// Runs a script at the place instead: what somebody else does to the host at that moment.
    #[cfg(test)]
    Script(std::sync::Arc<(String, String)>),
}

/// Only in tests: the place where a kill would have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped at a failpoint")]
pub(crate) struct Stopped;

impl Failpoint {
    pub(crate) fn off() -> Self {
        Self(Inner::Off)
    }

    /// `NAME`, or `place:N` counted from 0.
    #[cfg(debug_assertions)]
    pub(crate) fn kill_at(name: &str) -> Self {
        if let Some(place) = name.strip_prefix("place:").and_then(|place| place.parse().ok()) {
            let left = std::sync::atomic::AtomicUsize::new(place);
            return Self(Inner::KillAt(std::sync::Arc::new(left)));
        }
        #[cfg(test)]
        if let Some(place) = name.strip_prefix("stop:").and_then(|place| place.parse().ok()) {
            return Self::stop_at(place);
        }
        #[cfg(test)]
        if let Some((place, script)) = name.strip_prefix("run:").and_then(|it| it.split_once('=')) {
            return Self(Inner::Script((place.to_owned(), script.to_owned()).into()));
        }
        Self(Inner::Kill(name.into()))
    }

    #[cfg(test)]
    pub(crate) fn stop_at(place: usize) -> Self {
        Self(Inner::StopAt(std::sync::Arc::new(place.into())))
    }

    /// From now on, of one that was made to stop.
    #[cfg(test)]
    pub(crate) fn stop_after(&self, places: usize) {
        match &self.0 {
            Inner::StopAt(left) => left.store(places, std::sync::atomic::Ordering::SeqCst),
            Inner::Off | Inner::Kill(_) | Inner::KillAt(_) | Inner::Script(_) => {
                panic!("it stops nowhere")
            }
        }
    }

    /// The process passes the place called `name`.
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "only tests name places"))]
    pub(crate) fn hit(&self, name: &str) -> Result<(), Stopped> {
        match &self.0 {
            Inner::Off => Ok(()),
            #[cfg(debug_assertions)]
            Inner::Kill(place) if **place == *name => die(),
            #[cfg(debug_assertions)]
            Inner::Kill(_) => Ok(()),
            #[cfg(debug_assertions)]
            Inner::KillAt(left) => match passed(left) {
                true => Ok(()),
                false => die(),
            },
            #[cfg(test)]
            Inner::Script(at) => {
                if at.0 == name {
                    let script = std::process::Command::new("sh").args(["-ec", &at.1]).status();
                    assert!(script.unwrap().success(), "{}", at.1);
                }
                Ok(())
            }
            #[cfg(test)]
            Inner::StopAt(left) => match passed(left) {
                true => Ok(()),
                false => Err(Stopped),
            },
        }
    }
}

/// Counts down; false once nothing is left.
#[cfg(debug_assertions)]
fn passed(left: &std::sync::atomic::AtomicUsize) -> bool {
    use std::sync::atomic::Ordering;
    let step = |left: usize| left.checked_sub(1);
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step).is_ok()
}

/// As `kill -9` has it: nothing of this process runs any more, no handler, no destructor.
#[cfg(debug_assertions)]
fn die() -> ! {
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).ok();
    std::process::abort()
}
