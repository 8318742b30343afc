//! Deadlines of requests, in and out: what a caller grants binds the whole call, its streams and its onward calls.

use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

const HEADER: &str = "grpc-timeout";

/// Longer limits mean the same as this one, and clocks can still hold it.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// When the caller stops waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

tokio::task_local! {
    static CURRENT: Deadline;
}

impl Deadline {
    /// The deadline of the request that this task is serving, if its caller set one. A task that a handler spawns does not
    /// inherit it.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|deadline| *deadline).ok()
    }

    /// A deadline `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit.min(LONGEST))
    }

    /// What is left of it.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Reads `grpc-timeout`.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, Malformed> {
        let Some(value) = headers.get(HEADER) else { return Ok(None) };
        let limit = value.to_str().ok().and_then(parse).ok_or(Malformed(()))?;
        Ok(Some(Self::after(limit)))
    }

    /// Writes what is left into `grpc-timeout`.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        let mut request = tonic::Request::new(());
        request.set_timeout(self.left());
        headers.extend(request.metadata().clone().into_headers());
    }

    pub(crate) async fn passed(self) {
        tokio::time::sleep_until(self.0).await;
    }
}

/// Runs `work` as the serving of a request with this deadline.
pub(crate) async fn serving<F: Future>(deadline: Option<Deadline>, work: F) -> F::Output {
    match deadline {
        Some(deadline) => CURRENT.scope(deadline, work).await,
        None => work.await,
    }
}

/// The same for one poll of a stream.
pub(crate) fn polling<T>(deadline: Option<Deadline>, poll: impl FnOnce() -> T) -> T {
    match deadline {
        Some(deadline) => CURRENT.sync_scope(deadline, poll),
        None => poll(),
    }
}

/// A request that may take `limit`, and never more than is left of the request that this task is serving.
pub fn request<T>(message: T, limit: Duration) -> tonic::Request<T> {
    let left = Deadline::current().map_or(LONGEST, Deadline::left);
    let mut request = tonic::Request::new(message);
    request.set_timeout(limit.min(left).min(LONGEST));
    request
}

/// At most eight digits and a unit, as the protocol has it.
fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back().filter(char::is_ascii)?;
    let digits = text.get(..text.len() - 1)?;
    if digits.is_empty() || digits.len() > 8 || !digits.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(number * 3600)),
        'M' => Some(Duration::from_secs(number * 60)),
        'S' => Some(Duration::from_secs(number)),
        'm' => Some(Duration::from_millis(number)),
        'u' => Some(Duration::from_micros(number)),
        'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// A `grpc-timeout` that cannot be read; guessing would bind the caller to something it did not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("grpc-timeout is not at most eight digits and a unit")]
pub(crate) struct Malformed(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_nothing_else_is() {
        for (text, limit) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("4m", Duration::from_millis(4)),
            ("5u", Duration::from_micros(5)),
            ("99999999n", Duration::from_nanos(99_999_999)),
        ] {
            assert_eq!(parse(text), Some(limit), "{text}");
        }
        for text in ["", "S", "1", "1s", "123456789n", "-1S", "+1S", " 1S", "1 S", "1.5S", "1é"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_onward_request_never_gets_more_than_is_left() {
        let of = |request: &tonic::Request<()>| {
            Deadline::of(&request.metadata().clone().into_headers()).unwrap()
        };
        let alone = request((), Duration::from_secs(9));
        assert_eq!(of(&alone).map(Deadline::left), Some(Duration::from_secs(9)));

        let deadline = Deadline::after(Duration::from_secs(5));
        tokio::time::advance(Duration::from_secs(2)).await;
        let (longer, shorter) = serving(Some(deadline), async {
            (request((), Duration::from_secs(9)), request((), Duration::from_secs(1)))
        })
        .await;
        assert_eq!(of(&longer).map(Deadline::left), Some(Duration::from_secs(3)));
        assert_eq!(of(&shorter).map(Deadline::left), Some(Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_written_deadline_replaces_the_one_that_was_there() {
        let mut headers = request((), Duration::from_secs(9)).into_parts().0.into_headers();
        Deadline::after(Duration::from_secs(2)).write(&mut headers);
        assert_eq!(headers.get_all(HEADER).iter().count(), 1);
        assert_eq!(
            Deadline::of(&headers).unwrap().map(Deadline::left),
            Some(Duration::from_secs(2))
        );
    }

    #[test]
    fn an_endless_limit_is_no_panic() {
        assert_eq!(request((), Duration::MAX).metadata().len(), 1);
    }
}
