//! Bytes both ways until one of the ends, a limit or a silence ends it. What goes through is counted and not looked
//! at.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::line::End;
use crate::meter::{Meter, Way};

const BUFFER: usize = 16 * 1024;

/// One connection's count of bytes, and when the last of them went.
pub(crate) struct Flow<'b> {
    meter: &'b Meter,
    began: Instant,
    last_ms: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
}

impl<'b> Flow<'b> {
    pub(crate) fn new(meter: &'b Meter) -> Self {
        let (last_ms, up, down) = (0.into(), 0.into(), 0.into());
        Self { meter, began: Instant::now(), last_ms, up, down }
    }

    pub(crate) fn up(&self) -> u64 {
        self.up.load(Ordering::Relaxed)
    }

    pub(crate) fn down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }

    /// Before the bytes are passed on, so that a limit is never passed.
    fn take(&self, way: Way, bytes: usize) -> Result<(), End> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let (count, full) = match way {
            Way::Up => (&self.up, End::UploadLimit),
            Way::Down => (&self.down, End::DownloadLimit),
        };
        if !self.meter.take(way, bytes) {
            return Err(full);
        }
        count.fetch_add(bytes, Ordering::Relaxed);
        self.touch();
        Ok(())
    }

    fn touch(&self) {
        let passed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(passed, Ordering::Relaxed);
    }

    async fn silence(&self, idle: Duration) {
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let until = self.began + last + idle;
            if Instant::now() >= until {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    async fn pump(
        &self,
        way: Way,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> Result<(), End> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = from.read(&mut buffer).await.map_err(|_| End::Broken)?;
            if read == 0 {
                return to.shutdown().await.map_err(|_| End::Broken);
            }
            self.take(way, read)?;
            let bytes = buffer.get(..read).unwrap_or_default();
            to.write_all(bytes).await.map_err(|_| End::Broken)?;
            self.touch();
        }
    }
}

/// Both ways, the caller's `first` bytes before all others.
pub(crate) async fn run<C, U>(
    client: C,
    upstream: U,
    first: &[u8],
    flow: &Flow<'_>,
    idle: Duration,
    stop: &CancellationToken,
) -> End
where
    C: AsyncRead + AsyncWrite,
    U: AsyncRead + AsyncWrite,
{
    let (from_client, to_client) = tokio::io::split(client);
    let (from_upstream, mut to_upstream) = tokio::io::split(upstream);
    flow.touch();
    let up = async {
        flow.take(Way::Up, first.len())?;
        to_upstream.write_all(first).await.map_err(|_| End::Broken)?;
        flow.pump(Way::Up, from_client, to_upstream).await
    };
    let down = flow.pump(Way::Down, from_upstream, to_client);
    let both = async {
        match tokio::try_join!(up, down) {
            Ok(((), ())) => End::Done,
            Err(end) => end,
        }
    };
    tokio::select! {
        end = both => end,
        () = flow.silence(idle) => End::Idle,
        () = stop.cancelled() => End::Stopped,
    }
}
