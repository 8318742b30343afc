//! Waits until a service says that it is ready, and says what it waits for. It never waits longer than its limit.
use std::{net::SocketAddr, time::Duration};

use tokio::{net::TcpStream, time::Instant};

use crate::http;

const PAUSE: Duration = Duration::from_millis(50);
const ONE_ANSWER: Duration = Duration::from_secs(2);

/// What the readiness page last said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Nothing,
    NotReady(String),
}

/// Returns when the page at `admin` answers 200; otherwise what was seen last when the limit passed.
pub(crate) async fn wait(admin: SocketAddr, until: Instant) -> Result<(), Seen> {
    let mut seen = Seen::Nothing;
    while Instant::now() < until {
        match look(admin).await {
            Some(answer) if answer.status == 200 => return Ok(()),
            Some(answer) => seen = Seen::NotReady(first_line(&answer.body)),
            None => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(seen)
}

/// A page that does not answer yet is what is being waited for, not an error.
async fn look(admin: SocketAddr) -> Option<http::Answer> {
    let stream = TcpStream::connect(admin).await.ok()?;
    http::get(stream, "/readyz", ONE_ANSWER).await.ok()
}

fn first_line(body: &[u8]) -> String {
    String::from_utf8_lossy(body).lines().next().unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    async fn serve(listener: &TcpListener, answer: &str) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        assert!(request.starts_with(b"GET /readyz HTTP/1.0\r\n"));
        stream.write_all(answer.as_bytes()).await.unwrap();
    }

    #[tokio::test]
    async fn it_waits_through_unreadiness() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let admin = listener.local_addr().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let (waited, ()) = tokio::join!(wait(admin, until), async {
            serve(&listener, "HTTP/1.1 503 no\r\n\r\naudit\n").await;
            serve(&listener, "HTTP/1.1 200 ok\r\n\r\nready\n").await;
        });
        assert_eq!(waited, Ok(()));
    }

    #[tokio::test]
    async fn the_limit_ends_it_with_what_was_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let admin = listener.local_addr().unwrap();
        let until = Instant::now() + Duration::from_millis(300);
        let serving = async {
            loop {
                serve(&listener, "HTTP/1.1 503 no\r\n\r\nnot ready: audit\nx").await;
            }
        };
        let waited = tokio::select! { waited = wait(admin, until) => waited, () = serving => unreachable!() };
        assert_eq!(waited, Err(Seen::NotReady("not ready: audit".to_owned())));
        let nobody =
            wait("127.0.0.1:1".parse().unwrap(), Instant::now() + Duration::from_millis(60)).await;
        assert_eq!(nobody, Err(Seen::Nothing));
    }
}
