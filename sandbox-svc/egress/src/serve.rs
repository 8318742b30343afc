//! One connection, from its first byte to its last: the head, the decision, the addresses, the hello, the tunnel. Every
//! way out of it that is not a tunnel is a refusal.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::address::{Standing, standing};
use crate::broker::Broker;
use crate::config::Effect;
use crate::head::{BadHead, HEAD_BYTES, Head};
use crate::hello::{BadHello, Hello};
use crate::hosts::Target;
use crate::line::{End, Line, Reason, told};
use crate::tunnel::{self, Flow};
use crate::world::World;

/// The port on which nothing but TLS is spoken.
const TLS: u16 = 443;
/// A fatal `unrecognized_name`, so that a TLS library says something better than that it broke.
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x70];
const CONNECT_FAILED: &[u8] = b"HTTP/1.1 502 Bad Gateway\r\nx-proxy-error: connect_failed\r\n\
    content-length: 0\r\nconnection: close\r\n\r\n";
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
/// Of more addresses than this nobody needs the last.
const ADDRESSES: usize = 16;

/// What is told of a request that is refused.
struct Refusal {
    reason: Reason,
    host: String,
    port: Option<u16>,
    rule: Option<String>,
}

impl Refusal {
    fn of_nothing(reason: Reason) -> Self {
        Self { reason, host: String::new(), port: None, rule: None }
    }

    fn of(target: &Target, reason: Reason, rule: Option<&str>) -> Self {
        let (host, port) = (target.host().to_owned(), Some(target.port()));
        Self { reason, host, port, rule: rule.map(str::to_owned) }
    }
}

/// A target that may be dialled, at addresses that were looked at.
struct Permit {
    target: Target,
    rule: String,
    addresses: Vec<SocketAddr>,
}

/// What a caller sent in time.
enum Asked {
    Nothing,
    Head { authority: Vec<u8>, first: Vec<u8> },
    Bad(Reason),
}

impl<W: World> Broker<W> {
    pub(crate) async fn serve(&self, mut client: UnixStream) {
        let asked = tokio::select! {
            asked = self.asked(&mut client) => asked,
            () = self.stop.cancelled() => return,
        };
        if !matches!(asked, Asked::Nothing) && !self.meter.request() {
            return self.answer(client, Reason::TooManyRequests).await;
        }
        let (authority, first) = match asked {
            Asked::Nothing => return,
            Asked::Head { authority, first } => (authority, first),
            Asked::Bad(reason) => return self.refuse(client, Refusal::of_nothing(reason)).await,
        };
        match self.permit(&authority).await {
            Ok(permit) => self.connect(client, permit, first).await,
            Err(refusal) => self.refuse(client, refusal).await,
        }
    }

    /// Without a look at what it wants.
    pub(crate) async fn turn_away(&self, client: UnixStream) {
        if self.meter.request() {
            self.refuse(client, Refusal::of_nothing(Reason::TooManyConnections)).await;
        } else {
            self.answer(client, Reason::TooManyRequests).await;
        }
    }

    async fn asked(&self, client: &mut UnixStream) -> Asked {
        match timeout(self.limits.head(), read_head(client)).await {
            Ok(Ok(asked)) => asked,
            Ok(Err(_)) => Asked::Nothing,
            Err(_) => Asked::Bad(Reason::RequestTimeout),
        }
    }

    /// The one decision, by name first and then by every address of that name.
    async fn permit(&self, authority: &[u8]) -> Result<Permit, Refusal> {
        let target = Target::parse(authority)
            .map_err(|bad| Refusal { host: told(authority), ..Refusal::of_nothing(bad.into()) })?;
        let verdict = self.rules.decide(&target);
        let rule = Some(verdict.rule);
        if verdict.effect == Effect::Deny {
            return Err(Refusal::of(&target, Reason::NotAllowed, rule));
        }
        let resolved = timeout(self.limits.resolve(), self.world.resolve(target.host()));
        let found = match resolved.await {
            Ok(Ok(found)) if !found.is_empty() => found,
            Ok(Ok(_) | Err(_)) | Err(_) => {
                return Err(Refusal::of(&target, Reason::Unresolvable, rule));
            }
        };
        let private = self.rules.may_be_private(&target);
        let passes = |address| match standing(address) {
            Standing::Global => true,
            Standing::Private => private,
            Standing::Never => false,
        };
        // One that is not public among several is how a name is bent towards the inside.
        if !found.iter().copied().all(passes) {
            return Err(Refusal::of(&target, Reason::AddressNotPublic, rule));
        }
        let port = target.port();
        let addresses = found.into_iter().take(ADDRESSES).map(|ip| (ip, port).into()).collect();
        Ok(Permit { rule: verdict.rule.to_owned(), target, addresses })
    }

    /// Says why to whoever counts, and then to the caller.
    async fn refuse(&self, client: UnixStream, refusal: Refusal) {
        let Refusal { reason, host, port, rule } = refusal;
        if self.tell(&Line::Refused { host, port, rule, reason }).await {
            self.answer(client, reason).await;
        }
    }

    async fn answer(&self, mut client: UnixStream, reason: Reason) {
        let (status, word, sentence) = (reason.status(), reason.as_str(), reason.sentence());
        let length = sentence.len() + 1;
        let answer = format!(
            "HTTP/1.1 {status}\r\nx-proxy-error: {word}\r\ncontent-type: text/plain\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{sentence}\n"
        );
        self.send(&mut client, answer.as_bytes()).await;
    }

    async fn connect(&self, client: UnixStream, permit: Permit, first: Vec<u8>) {
        let Permit { target, rule, addresses } = permit;
        let id = self.meter.next();
        let (host, port) = (target.host().to_owned(), target.port());
        // Before anything goes out: a connection that nobody was told of is not made.
        if !self.tell(&Line::Opened { id, host, port, rule }).await {
            return;
        }
        let flow = Flow::new(&self.meter);
        let end = tokio::select! {
            end = self.carry(client, &target, &addresses, first, &flow) => end,
            () = self.stop.cancelled() => End::Stopped,
        };
        self.tell(&Line::Closed { id, up: flow.up(), down: flow.down(), end }).await;
    }

    async fn carry(
        &self,
        mut client: UnixStream,
        target: &Target,
        addresses: &[SocketAddr],
        first: Vec<u8>,
        flow: &Flow<'_>,
    ) -> End {
        let dialled = timeout(self.limits.connect(), self.dial(addresses)).await;
        let Ok(Some(upstream)) = dialled else {
            self.send(&mut client, CONNECT_FAILED).await;
            return End::ConnectFailed;
        };
        if !self.send(&mut client, ESTABLISHED).await {
            return End::Broken;
        }
        let first = if target.port() == TLS {
            match self.hello(&mut client, target.host(), &first).await {
                Ok(bytes) => bytes,
                Err(end) => {
                    self.send(&mut client, &UNRECOGNIZED_NAME).await;
                    return end;
                }
            }
        } else {
            first
        };
        tunnel::run(client, upstream, &first, flow, self.limits.idle(), &self.stop).await
    }

    /// Whether it was taken: a caller that does not read is not waited for.
    async fn send(&self, client: &mut UnixStream, bytes: &[u8]) -> bool {
        let sent = timeout(self.limits.head(), client.write_all(bytes)).await;
        matches!(sent, Ok(Ok(())))
    }

    /// The first of the addresses that answers; none is looked up again.
    async fn dial(&self, addresses: &[SocketAddr]) -> Option<TcpStream> {
        for address in addresses {
            if let Ok(upstream) = self.world.dial(*address).await {
                return Some(upstream);
            }
        }
        None
    }

    /// The bytes of a hello that names the host, all of them kept for the host.
    async fn hello(
        &self,
        client: &mut UnixStream,
        host: &str,
        first: &[u8],
    ) -> Result<Vec<u8>, End> {
        let read = async {
            let mut hello = Hello::new();
            let mut buffer = vec![0; 4096];
            let mut more = first;
            loop {
                match hello.feed(more, host) {
                    Ok(true) => return Ok(hello.into_bytes()),
                    Ok(false) => (),
                    Err(BadHello::NotTls) => return Err(End::NotTls),
                    Err(BadHello::NoName) => return Err(End::ServerNameMissing),
                    Err(BadHello::OtherName) => return Err(End::ServerNameOther),
                }
                match client.read(&mut buffer).await {
                    Ok(0) | Err(_) => return Err(End::NotTls),
                    Ok(read) => more = buffer.get(..read).unwrap_or_default(),
                }
            }
        };
        timeout(self.limits.hello(), read).await.unwrap_or(Err(End::NotTls))
    }
}

async fn read_head(client: &mut (impl AsyncRead + Unpin)) -> io::Result<Asked> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 2048];
    loop {
        match Head::parse(&bytes) {
            Ok(Some(Head { authority, length })) => {
                let first = bytes.split_off(length);
                return Ok(Asked::Head { authority, first });
            }
            Ok(None) if bytes.len() >= HEAD_BYTES => {
                return Ok(Asked::Bad(Reason::MalformedRequest));
            }
            Ok(None) => (),
            Err(BadHead::Method) => return Ok(Asked::Bad(Reason::MethodNotAllowed)),
            Err(BadHead::Form | BadHead::Long) => return Ok(Asked::Bad(Reason::MalformedRequest)),
        }
        let read = client.read(&mut buffer).await?;
        match (read, bytes.is_empty()) {
            (0, true) => return Ok(Asked::Nothing),
            (0, false) => return Ok(Asked::Bad(Reason::MalformedRequest)),
            (read, _) => bytes.extend_from_slice(buffer.get(..read).unwrap_or_default()),
        }
    }
}
