//! Starts and ends service processes. Children are started from one thread that lives exactly as long as the mesh,
//! because the kernel's parent-death signal follows the thread, not the process.
use std::{io, process::ExitStatus, sync::mpsc, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    runtime::Handle,
    sync::oneshot,
    time::timeout,
};

struct Request {
    command: Command,
    runtime: Handle,
    answer: oneshot::Sender<io::Result<Child>>,
}

/// Dropping it ends every process that it started.
#[derive(Debug)]
pub(crate) struct Spawner {
    requests: mpsc::SyncSender<Request>,
}

impl Spawner {
    pub(crate) fn start() -> io::Result<Self> {
        let (requests, inbox) = mpsc::sync_channel::<Request>(8);
        thread::Builder::new().name("mesh-spawner".to_owned()).spawn(move || {
            for Request { mut command, runtime, answer } in inbox {
                let entered = runtime.enter();
                let child = command.spawn();
                drop(entered);
                // Whoever asked is gone: its child is dropped, and ends with this thread.
                drop(answer.send(child));
            }
        })?;
        Ok(Self { requests })
    }

    pub(crate) async fn spawn(&self, command: Command) -> io::Result<Process> {
        let gone = || io::Error::other("the spawner thread has ended");
        let (answer, child) = oneshot::channel();
        self.requests
            .send(Request { command, runtime: Handle::current(), answer })
            .map_err(|_| gone())?;
        let child = child.await.map_err(|_| gone())??;
        let pid = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(gone)?;
        Ok(Process { child, pid })
    }
}

/// One started process.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until it ends by itself. Cancel safe.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) async fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.start_kill()?;
        self.child.wait().await
    }

    /// SIGTERM, then SIGKILL when `limit` has passed.
    pub(crate) async fn terminate(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        kill_process(self.pid, Signal::TERM)?;
        match timeout(limit, self.child.wait()).await {
            Ok(status) => status,
            Err(_) => self.kill().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "sleep", "600"]);
        command
    }

    async fn under_exec(process: &Process) {
        let comm = format!("/proc/{}/comm", process.id());
        for _ in 0..500 {
            if std::fs::read_to_string(&comm).is_ok_and(|name| name.trim() == "sleep") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the child did not start");
    }

    #[tokio::test]
    async fn a_process_that_ignores_sigterm_is_killed_after_the_limit() {
        let spawner = Spawner::start().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo up; kill -STOP $$"]);
        command.stdout(std::process::Stdio::piped());
        let mut process = spawner.spawn(command).await.unwrap();
        let mut out = process.child.stdout.take().unwrap();
        tokio::io::AsyncReadExt::read_u8(&mut out).await.unwrap();
        let status = process.terminate(Duration::from_millis(50)).await.unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }

    #[tokio::test]
    async fn a_process_that_obeys_is_not_killed() {
        let spawner = Spawner::start().unwrap();
        let mut process = spawner.spawn(sleeper()).await.unwrap();
        under_exec(&process).await;
        let status = process.terminate(Duration::from_secs(20)).await.unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
    }

    #[tokio::test]
    async fn processes_end_with_the_spawner() {
        let spawner = Spawner::start().unwrap();
        let mut process = spawner.spawn(sleeper()).await.unwrap();
        under_exec(&process).await;
        drop(spawner);
        let status = timeout(Duration::from_secs(20), process.wait()).await.unwrap().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }
}
