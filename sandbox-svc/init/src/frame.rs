//! The one frame that a container's first process reads: what to run, as what, for how long. A frame that is not
//! whole, too long, of another version or with anything left over runs nothing.

use std::fmt;
use std::io::Read;
use std::time::Duration;

/// The longest frame, without its length.
pub const MAX_FRAME: usize = 1 << 20;
pub const MAX_COMMANDS: usize = 32;
const VERSION: u8 = 1;
const LENGTH: usize = 4;

/// 128 random bits that no command ever sees: what follows them in the output is the first process's word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Nonce([u8; Self::LENGTH]);

impl Nonce {
    pub const LENGTH: usize = 16;

    #[must_use]
    pub fn new(random: [u8; Self::LENGTH]) -> Self {
        Self(random)
    }

    /// Without an end of a line in it, for whoever listens line by line: no whole line is held back because it could be
    /// the beginning of the last words.
    #[must_use]
    pub fn of_lines(random: [u8; Self::LENGTH]) -> Self {
        Self(random.map(|byte| if byte == b'\n' { b'\r' } else { byte }))
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(..)")
    }
}

/// What a command reads.
#[derive(Clone, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing.
    Empty,
    /// These bytes, whole: they are in the frame, so a command never sees a part of them.
    Bytes(Vec<u8>),
    /// Whatever follows the frame.
    Rest,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    /// The file that is executed; it is not looked for.
    pub program: Vec<u8>,
    /// The whole list, the name that the program is called by first.
    pub argv: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    pub nonce: Nonce,
    pub cwd: Vec<u8>,
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Of all commands together.
    pub time_limit: Duration,
    pub stdin: Stdin,
    /// Run in order, up to the first that fails.
    pub commands: Vec<Command>,
}

#[derive(Debug)]
pub enum FrameError {
    Read(std::io::Error),
    /// It ends too early.
    Short,
    Long,
    Version(u8),
    Malformed(&'static str),
}

// By hand: this crate is built for every build of the service, and a macro would be built with it.
impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(_) => f.write_str("the frame cannot be read"),
            Self::Short => f.write_str("the frame ends too early"),
            Self::Long => write!(f, "the frame is longer than {MAX_FRAME} bytes"),
            Self::Version(version) => write!(f, "the frame is of version {version}"),
            Self::Malformed(what) => write!(f, "the frame is malformed: {what}"),
        }
    }
}

impl std::error::Error for FrameError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(error) => Some(error),
            Self::Short | Self::Long | Self::Version(_) | Self::Malformed(_) => None,
        }
    }
}

impl From<std::io::Error> for FrameError {
    fn from(error: std::io::Error) -> Self {
        Self::Read(error)
    }
}

impl Frame {
    /// The frame with its length before it.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FrameError> {
        let mut body = vec![VERSION];
        body.extend_from_slice(self.nonce.as_bytes());
        let limit = u64::try_from(self.time_limit.as_millis());
        body.extend_from_slice(&limit.unwrap_or(u64::MAX).to_be_bytes());
        put(&mut body, &self.cwd)?;
        put_count(&mut body, self.env.len())?;
        for (name, value) in &self.env {
            put(&mut body, name)?;
            put(&mut body, value)?;
        }
        match &self.stdin {
            Stdin::Empty => body.push(0),
            Stdin::Bytes(bytes) => {
                body.push(1);
                put(&mut body, bytes)?;
            }
            Stdin::Rest => body.push(2),
        }
        put_count(&mut body, self.commands.len())?;
        for command in &self.commands {
            put(&mut body, &command.program)?;
            put_count(&mut body, command.argv.len())?;
            for argument in &command.argv {
                put(&mut body, argument)?;
            }
        }
        if body.len() > MAX_FRAME {
            return Err(FrameError::Long);
        }
        // What cannot be read back is not sent.
        Self::parse(&body)?;
        let mut whole = length(body.len())?.to_vec();
        whole.extend_from_slice(&body);
        Ok(whole)
    }

    /// Takes exactly the frame's bytes from `input` and not one more.
    pub fn read(mut input: impl Read) -> Result<Self, FrameError> {
        let mut head = [0; LENGTH];
        fill(&mut input, &mut head)?;
        let length = usize::try_from(u32::from_be_bytes(head)).map_err(|_| FrameError::Long)?;
        if length > MAX_FRAME {
            return Err(FrameError::Long);
        }
        let mut body = vec![0; length];
        fill(&mut input, &mut body)?;
        Self::parse(&body)
    }

    /// The frame without its length.
    pub fn parse(body: &[u8]) -> Result<Self, FrameError> {
        let mut rest = Rest(body);
        let version = rest.byte()?;
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        let nonce = Nonce(rest.array()?);
        let time_limit = Duration::from_millis(u64::from_be_bytes(rest.array()?));
        let cwd = rest.text()?;
        let env = rest.list(|rest| Ok((rest.text()?, rest.text()?)))?;
        let stdin = match rest.byte()? {
            0 => Stdin::Empty,
            1 => Stdin::Bytes(rest.bytes()?.to_vec()),
            2 => Stdin::Rest,
            _ => return Err(FrameError::Malformed("a standard input of no known kind")),
        };
        let commands =
            rest.list(|rest| Ok(Command { program: rest.text()?, argv: rest.list(Rest::text)? }))?;
        let frame = Self { nonce, cwd, env, time_limit, stdin, commands };
        if !rest.0.is_empty() {
            return Err(FrameError::Malformed("something is left over"));
        }
        frame.checked()
    }

    fn checked(self) -> Result<Self, FrameError> {
        let malformed = |what| Err(FrameError::Malformed(what));
        if !(1..=MAX_COMMANDS).contains(&self.commands.len()) {
            return malformed("no command, or too many");
        }
        if self.commands.iter().any(|command| command.argv.is_empty()) {
            return malformed("a command without a name");
        }
        let absolute = |path: &[u8]| path.first() == Some(&b'/');
        if !absolute(&self.cwd) || !self.commands.iter().all(|it| absolute(&it.program)) {
            return malformed("a path that is not absolute");
        }
        if self.env.iter().any(|(name, _)| name.is_empty() || name.contains(&b'=')) {
            return malformed("a variable without a name");
        }
        Ok(self)
    }
}

fn length(of: usize) -> Result<[u8; LENGTH], FrameError> {
    Ok(u32::try_from(of).map_err(|_| FrameError::Long)?.to_be_bytes())
}

fn put(body: &mut Vec<u8>, bytes: &[u8]) -> Result<(), FrameError> {
    body.extend_from_slice(&length(bytes.len())?);
    body.extend_from_slice(bytes);
    Ok(())
}

fn put_count(body: &mut Vec<u8>, count: usize) -> Result<(), FrameError> {
    let count = u16::try_from(count).map_err(|_| FrameError::Long)?;
    body.extend_from_slice(&count.to_be_bytes());
    Ok(())
}

fn fill(input: &mut impl Read, into: &mut [u8]) -> Result<(), FrameError> {
    input.read_exact(into).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => FrameError::Short,
        _ => FrameError::Read(error),
    })
}

/// What of a frame has not been read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(FrameError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        self.take(N)?.try_into().map_err(|_| FrameError::Short)
    }

    fn byte(&mut self) -> Result<u8, FrameError> {
        Ok(self.array::<1>()?[0])
    }

    fn bytes(&mut self) -> Result<&'a [u8], FrameError> {
        let count = usize::try_from(u32::from_be_bytes(self.array()?));
        self.take(count.map_err(|_| FrameError::Short)?)
    }

    /// Bytes that an argument or a variable can have.
    fn text(&mut self) -> Result<Vec<u8>, FrameError> {
        let bytes = self.bytes()?;
        if bytes.contains(&0) {
            return Err(FrameError::Malformed("a text with a zero byte"));
        }
        Ok(bytes.to_vec())
    }

    fn list<T>(
        &mut self,
        item: impl Fn(&mut Self) -> Result<T, FrameError>,
    ) -> Result<Vec<T>, FrameError> {
        let count = u16::from_be_bytes(self.array()?);
        (0..count).map(|_| item(self)).collect()
    }
}

impl fmt::Debug for Frame {
    /// Never what is run, nor its environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("commands", &self.commands.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").field("arguments", &self.argv.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::Bytes(_) => "Bytes(..)",
            Self::Rest => "Rest",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{Command, Frame, FrameError, MAX_FRAME, Nonce, Stdin};

    fn frame() -> Frame {
        Frame {
            nonce: Nonce::new([7; 16]),
            cwd: b"/workspace".to_vec(),
            env: vec![(b"PATH".to_vec(), b"/bin".to_vec())],
            time_limit: Duration::from_secs(3),
            stdin: Stdin::Bytes(b"one\0two".to_vec()),
            commands: vec![Command {
                program: b"/bin/sh".to_vec(),
                argv: [&b"sh"[..], b"-c", b""].map(<[u8]>::to_vec).to_vec(),
            }],
        }
    }

    #[test]
    fn what_follows_a_frame_is_not_read() {
        let mut bytes = frame().to_bytes().unwrap();
        bytes.extend_from_slice(b"the rest");
        let mut input = bytes.as_slice();
        assert_eq!(Frame::read(&mut input).unwrap(), frame());
        assert_eq!(input, b"the rest");
    }

    #[test]
    fn a_frame_cut_anywhere_is_no_frame() {
        let bytes = frame().to_bytes().unwrap();
        for length in 0..bytes.len() {
            let read = Frame::read(&bytes[..length]);
            assert!(matches!(read, Err(FrameError::Short)), "{length}");
        }
    }

    #[test]
    fn nothing_is_sent_that_would_not_be_read() {
        let refused = |change: &dyn Fn(&mut Frame)| {
            let mut frame = frame();
            change(&mut frame);
            frame.to_bytes().is_err()
        };
        assert!(refused(&|frame| frame.commands.clear()));
        assert!(refused(&|frame| frame.commands = vec![frame.commands[0].clone(); 33]));
        assert!(refused(&|frame| frame.commands[0].argv.clear()));
        assert!(refused(&|frame| frame.commands[0].argv[1].push(0)));
        assert!(refused(&|frame| frame.commands[0].program = b"sh".to_vec()));
        assert!(refused(&|frame| frame.cwd = b"workspace".to_vec()));
        assert!(refused(&|frame| frame.env[0].0 = b"A=B".to_vec()));
        assert!(refused(&|frame| frame.stdin = Stdin::Bytes(vec![0; MAX_FRAME])));
    }

    #[test]
    fn another_version_or_a_longer_frame_is_refused() {
        let mut bytes = frame().to_bytes().unwrap();
        bytes[4] = 2;
        assert!(matches!(Frame::read(bytes.as_slice()), Err(FrameError::Version(2))));
        bytes[..4].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(matches!(Frame::read(bytes.as_slice()), Err(FrameError::Long)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_and_what_is_read_writes_itself(
            bytes in vec(any::<u8>(), 0..400), flip in any::<(usize, u8)>()
        ) {
            Frame::parse(&bytes).ok();
            let mut near = frame().to_bytes().unwrap().split_off(4);
            let at = flip.0 % near.len();
            near[at] ^= flip.1;
            if let Ok(read) = Frame::parse(&near) {
                prop_assert_eq!(read.to_bytes().unwrap().split_off(4), near);
            }
        }
    }
}
