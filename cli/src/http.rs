//! One small GET over a stream that is already open: readiness pages and the engine's read-only questions.
//! It follows nothing, keeps nothing alive and reads a bounded answer.
use std::{io, time::Duration};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const LIMIT: u64 = 4 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    #[error("the connection broke")]
    Io(#[source] io::Error),
    #[error("the answer is not HTTP")]
    NotHttp,
}

/// HTTP/1.0 asks for an unchunked body that ends with the connection.
pub(crate) async fn get<S>(stream: S, path: &str, limit: Duration) -> Result<Answer, Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    tokio::time::timeout(limit, exchange(stream, path)).await.map_err(|_| Error::Late(limit))?
}

async fn exchange<S>(mut stream: S, path: &str) -> Result<Answer, Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(Error::Io)?;
    let mut bytes = Vec::new();
    stream.take(LIMIT).read_to_end(&mut bytes).await.map_err(Error::Io)?;
    parse(&bytes).ok_or(Error::NotHttp)
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let rest = head.strip_prefix("HTTP/1.")?;
    let status = rest.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: bytes.get(end + 4..)?.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answer(text: &'static str) -> Result<Answer, Error> {
        let (near, mut far) = tokio::io::duplex(4096);
        let (got, written) =
            tokio::join!(get(near, "/readyz", Duration::from_secs(5)), async move {
                let mut request = [0; 20];
                far.read_exact(&mut request).await?;
                far.write_all(text.as_bytes()).await
            });
        written.unwrap();
        got
    }

    #[tokio::test]
    async fn status_and_body_are_read() {
        let got = answer("HTTP/1.1 503 Service Unavailable\r\nX: y\r\n\r\nnot ready: audit\n")
            .await
            .unwrap();
        assert_eq!((got.status, got.body.as_slice()), (503, b"not ready: audit\n".as_slice()));
    }

    #[tokio::test]
    async fn what_is_not_http_is_an_error() {
        assert!(matches!(answer("SSH-2.0-OpenSSH\r\n\r\n").await, Err(Error::NotHttp)));
        assert!(matches!(answer("HTTP/1.1 ok\r\n\r\n").await, Err(Error::NotHttp)));
    }
}
