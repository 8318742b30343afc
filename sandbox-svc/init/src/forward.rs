//! Connections to one local port, each passed on to the socket that is bound into the container. It copies bytes and
//! decides nothing: what the broker behind the socket does not let through goes nowhere, and without a socket nobody
//! listens.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use sandbox_init::{EGRESS_SOCKET, PROXY_PORT};

/// At one time; more wait in the listener's queue.
const CONNECTIONS: usize = 64;
const BUFFER: usize = 16 * 1024;

/// Where there is a socket. A port that cannot be listened on connects nobody, which is safe.
pub(crate) fn start() {
    if Path::new(EGRESS_SOCKET).exists() {
        drop(begin());
    }
}

/// One thread for all connections: a container has few processes to give away.
fn begin() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))?;
    listener.set_nonblocking(true)?;
    let serve = move || serve(&listener, Path::new(EGRESS_SOCKET));
    thread::Builder::new().name("forward".to_owned()).spawn(serve).map(drop)
}

/// As long as the listener can be waited for.
fn serve(listener: &TcpListener, socket: &Path) {
    let mut pairs: Vec<Pair> = Vec::new();
    loop {
        let Ok(ready) = wait(listener, &pairs) else { return };
        let Ready { accept, pairs: events } = ready;
        let mut events = events.into_iter();
        pairs.retain_mut(|pair| {
            events.next().is_some_and(|(client, broker)| pair.turn(client, broker))
        });
        if accept && let Ok(pair) = Pair::accept(listener, socket) {
            pairs.push(pair);
        }
    }
}

/// What poll said.
struct Ready {
    accept: bool,
    pairs: Vec<(PollFlags, PollFlags)>,
}

fn wait(listener: &TcpListener, pairs: &[Pair]) -> io::Result<Ready> {
    let open = pairs.len() < CONNECTIONS;
    let asked = if open { PollFlags::IN } else { PollFlags::empty() };
    let mut all = vec![PollFd::new(listener, asked)];
    for Pair { client, broker, up, down } in pairs {
        all.push(PollFd::new(client, up.reads() | down.writes()));
        all.push(PollFd::new(broker, down.reads() | up.writes()));
    }
    match poll(&mut all, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => (),
        Err(error) => return Err(error.into()),
    }
    let mut said = all.iter().map(PollFd::revents);
    let accept = said.next().is_some_and(|events| events.contains(PollFlags::IN));
    let said: Vec<_> = said.collect();
    let pairs = said.chunks_exact(2).map(|two| (two[0], two[1])).collect();
    Ok(Ready { accept, pairs })
}

struct Pair {
    client: TcpStream,
    broker: UnixStream,
    up: Pipe,
    down: Pipe,
}

impl Pair {
    /// A broker that is not there closes the connection.
    fn accept(listener: &TcpListener, socket: &Path) -> io::Result<Self> {
        let (client, _) = listener.accept()?;
        client.set_nonblocking(true)?;
        let broker = UnixStream::connect(socket)?;
        broker.set_nonblocking(true)?;
        Ok(Self { client, broker, up: Pipe::default(), down: Pipe::default() })
    }

    /// Passes on what can be; whether the pair goes on.
    fn turn(&mut self, client: PollFlags, broker: PollFlags) -> bool {
        let Self { client: near, broker: far, up, down } = self;
        let passed = (|| {
            if up.pass(&mut &*near, &mut &*far)? {
                far.shutdown(Shutdown::Write)?;
            }
            if down.pass(&mut &*far, &mut &*near)? {
                near.shutdown(Shutdown::Write)?;
            }
            Ok::<_, io::Error>(())
        })();
        let gone = |events: PollFlags, from: &Pipe| {
            events.contains(PollFlags::ERR) || events.contains(PollFlags::HUP) && from.is_over()
        };
        let over = up.is_over() && down.is_over();
        passed.is_ok() && !over && !gone(client, up) && !gone(broker, down)
    }
}

/// One way.
#[derive(Default)]
struct Pipe {
    pending: Vec<u8>,
    ended: bool,
    closed: bool,
}

impl Pipe {
    fn reads(&self) -> PollFlags {
        let wants = self.pending.is_empty() && !self.ended;
        if wants { PollFlags::IN } else { PollFlags::empty() }
    }

    fn writes(&self) -> PollFlags {
        if self.pending.is_empty() { PollFlags::empty() } else { PollFlags::OUT }
    }

    fn is_over(&self) -> bool {
        self.ended && self.pending.is_empty()
    }

    /// Once, at the end, it says that the other side is to be closed.
    fn pass(&mut self, from: &mut impl Read, to: &mut impl Write) -> io::Result<bool> {
        if self.pending.is_empty() && !self.ended {
            let mut buffer = [0; BUFFER];
            match from.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(read) => self.pending.extend_from_slice(&buffer[..read]),
                Err(error) => later(error)?,
            }
        }
        if !self.pending.is_empty() {
            match to.write(&self.pending) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) => later(error)?,
            }
        }
        let close = self.is_over() && !self.closed;
        self.closed |= close;
        Ok(close)
    }
}

fn later(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;
    use std::thread;
    use std::time::Duration;

    use super::serve;

    struct Way {
        port: u16,
        broker: UnixListener,
        _dir: Dir,
    }

    struct Dir(std::path::PathBuf);

    impl Drop for Dir {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn way(name: &str) -> Way {
        let dir = std::env::temp_dir().join(format!("forward-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("s");
        let broker = UnixListener::bind(&socket).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || serve(&listener, &socket));
        Way { port, broker, _dir: Dir(dir) }
    }

    fn client(way: &Way) -> TcpStream {
        let client = TcpStream::connect(("127.0.0.1", way.port)).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client
    }

    #[test]
    fn bytes_go_both_ways_and_each_end_is_passed_on() {
        let way = way("both");
        let mut near = client(&way);
        let (mut far, _) = way.broker.accept().unwrap();
        let sent: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
        let mut other = near.try_clone().unwrap();
        let copy = sent.clone();
        let writer = thread::spawn(move || {
            other.write_all(&copy).unwrap();
            other.shutdown(Shutdown::Write).unwrap();
        });
        let mut seen = Vec::new();
        far.read_to_end(&mut seen).unwrap();
        writer.join().unwrap();
        assert!(seen == sent);
        far.write_all(b"answer").unwrap();
        drop(far);
        let mut answer = String::new();
        near.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
    }

    #[test]
    fn a_broker_that_is_gone_ends_the_connection() {
        let way = way("gone");
        let mut near = client(&way);
        drop(way.broker.accept().unwrap());
        assert_eq!(near.read(&mut [0]).unwrap_or(0), 0);
        let Way { port, broker, _dir } = way;
        drop(broker);
        let mut late = TcpStream::connect(("127.0.0.1", port)).unwrap();
        late.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(late.read(&mut [0]).unwrap_or(0), 0);
    }

    #[test]
    fn many_connections_are_served_at_once() {
        let way = way("many");
        let mut pairs: Vec<_> =
            (0..40u8).map(|_| (client(&way), way.broker.accept().unwrap().0)).collect();
        for (number, (near, far)) in pairs.iter_mut().enumerate().rev() {
            let number = u8::try_from(number).unwrap();
            near.write_all(&[number]).unwrap();
            let mut byte = [0];
            far.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [number]);
        }
    }
}
