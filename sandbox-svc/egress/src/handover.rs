//! How a broker gets its work: the listener and one line of configuration, over the socket that is its standard input.
//! As long as the other end is open, the broker lives.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::config::{BadConfig, Config};

/// The longest configuration, its end of line included.
const CONFIG_BYTES: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// What a broker is given.
#[derive(Debug)]
pub struct Handover {
    pub config: Config,
    pub listener: UnixListener,
    /// Ends when whoever started the broker ends, or lets go.
    pub lifeline: UnixStream,
}

#[derive(Debug, thiserror::Error)]
pub enum NotHandedOver {
    #[error("the standard input is not a socket with a listener and one line")]
    Input(#[source] io::Error),
    #[error("there is no listener, or more than one")]
    Listener,
    #[error("the configuration is longer than {CONFIG_BYTES} bytes or has no end")]
    Long,
    #[error(transparent)]
    Config(#[from] BadConfig),
}

/// The broker's own side is the other end of `stream`. Blocks.
pub fn give(stream: &UnixStream, listener: BorrowedFd<'_>, config: &Config) -> io::Result<()> {
    let mut line = serde_json::to_vec(config).map_err(io::Error::other)?;
    line.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights = [listener];
    if !control.push(SendAncillaryMessage::ScmRights(&rights)) {
        return Err(io::Error::other("a descriptor does not fit"));
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    let sent = sendmsg(stream, &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?;
    (&*stream).write_all(line.get(sent..).unwrap_or_default())
}

impl Handover {
    /// From the standard input. Blocks, for a while at most.
    pub fn take(input: BorrowedFd<'_>) -> Result<Self, NotHandedOver> {
        let lifeline = input.try_clone_to_owned().map(UnixStream::from);
        let lifeline = lifeline.map_err(NotHandedOver::Input)?;
        lifeline.set_read_timeout(Some(PATIENCE)).map_err(NotHandedOver::Input)?;
        let mut bytes = vec![0; 64 * 1024];
        let (read, mut descriptors) = receive(&lifeline, &mut bytes)?;
        bytes.truncate(read);
        let (Some(listener), None) = (descriptors.pop(), descriptors.pop()) else {
            return Err(NotHandedOver::Listener);
        };
        while bytes.last() != Some(&b'\n') {
            let mut buffer = [0; 16 * 1024];
            let read = (&lifeline).read(&mut buffer).map_err(NotHandedOver::Input)?;
            bytes.extend_from_slice(buffer.get(..read).unwrap_or_default());
            if read == 0 || bytes.len() > CONFIG_BYTES {
                return Err(NotHandedOver::Long);
            }
        }
        lifeline.set_read_timeout(None).map_err(NotHandedOver::Input)?;
        Ok(Self { config: Config::parse(&bytes)?, listener: listener.into(), lifeline })
    }
}

fn receive(from: &UnixStream, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), NotHandedOver> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(from.as_fd(), &mut [IoSliceMut::new(bytes)], &mut control, flags);
    let received = received.map_err(|error| NotHandedOver::Input(error.into()))?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}
