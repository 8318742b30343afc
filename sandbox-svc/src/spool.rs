//! What a command wrote, bounded: the beginning and the end of it by offset, and of each stream as text. It
//! never grows with the output.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::engine::{Frame, Stream};

const HEAD: usize = 1 << 20;
const TAIL: usize = 1 << 20;
/// Neighbours of one stream are joined up to this size.
const CHUNK: usize = 16 * 1024;
/// What a model is told of each stream, half from its beginning and half from its end.
const TEXT: usize = 32 * 1024;
/// What is kept of a finished call, likewise.
const KEPT: u64 = 128 * 1024;

/// A piece of the output; offsets count both streams together, in the order of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) offset: u64,
    pub(crate) stream: Stream,
    pub(crate) bytes: Bytes,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// What of it lies in `from..to`.
    fn part(&self, from: u64, to: u64) -> Option<Self> {
        let (start, end) = (self.offset.max(from), self.end().min(to));
        let range = usize::try_from(start.checked_sub(self.offset)?).ok()?
            ..usize::try_from(end.checked_sub(self.offset)?).ok()?;
        (!range.is_empty()).then(|| Self {
            offset: start,
            stream: self.stream,
            bytes: self.bytes.slice(range),
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Spool {
    head: Vec<Chunk>,
    head_bytes: usize,
    tail: VecDeque<Chunk>,
    tail_bytes: usize,
    stdout: Clip,
    stderr: Clip,
}

impl Spool {
    pub(crate) fn total(&self) -> u64 {
        self.stdout.total + self.stderr.total
    }

    pub(crate) fn bytes(&self, stream: Stream) -> u64 {
        self.clip(stream).total
    }

    /// Takes at most `left` bytes of the frame.
    pub(crate) fn push(&mut self, frame: Frame, left: u64) {
        let Frame { stream, mut bytes } = frame;
        bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        if bytes.is_empty() {
            return;
        }
        let offset = self.total();
        match stream {
            Stream::Stdout => self.stdout.push(&bytes),
            Stream::Stderr => self.stderr.push(&bytes),
        }
        let room = HEAD.saturating_sub(self.head_bytes);
        let rest = bytes.split_off(bytes.len().min(room));
        let start = offset + bytes.len() as u64;
        if !bytes.is_empty() {
            self.head_bytes += bytes.len();
            join(&mut self.head, Chunk { offset, stream, bytes });
        }
        if !rest.is_empty() {
            self.tail_bytes += rest.len();
            self.tail.push_back(Chunk { offset: start, stream, bytes: rest });
        }
        while self.tail_bytes > TAIL
            && let Some(first) = self.tail.pop_front()
        {
            self.tail_bytes -= first.bytes.len();
        }
    }

    /// The first piece at or behind `offset` that is still here.
    pub(crate) fn after(&self, offset: u64) -> Option<Chunk> {
        let at = self.head.partition_point(|chunk| chunk.end() <= offset);
        let chunk =
            self.head.get(at).or_else(|| self.tail.iter().find(|chunk| chunk.end() > offset));
        chunk.and_then(|chunk| chunk.part(offset, u64::MAX))
    }

    /// Beginning and end for later readers.
    pub(crate) fn kept(&self) -> Vec<Chunk> {
        let total = self.total();
        let end = total.saturating_sub(KEPT).max(KEPT);
        let all = || self.head.iter().chain(&self.tail);
        let begin = all().filter_map(|chunk| chunk.part(0, KEPT));
        begin.chain(all().filter_map(|chunk| chunk.part(end, u64::MAX))).collect()
    }

    pub(crate) fn text(&self, stream: Stream) -> String {
        self.clip(stream).text()
    }

    fn clip(&self, stream: Stream) -> &Clip {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }
}

fn join(chunks: &mut Vec<Chunk>, chunk: Chunk) {
    match chunks.last_mut() {
        Some(last)
            if last.stream == chunk.stream && last.bytes.len() + chunk.bytes.len() <= CHUNK =>
        {
            let mut bytes = BytesMut::from(&last.bytes[..]);
            bytes.extend_from_slice(&chunk.bytes);
            last.bytes = bytes.freeze();
        }
        Some(_) | None => chunks.push(chunk),
    }
}

/// Beginning and end of one stream.
#[derive(Debug, Default)]
struct Clip {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Clip {
    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = TEXT / 2 - self.head.len();
        let (head, rest) = bytes.split_at(bytes.len().min(room));
        self.head.extend_from_slice(head);
        // Only the end of a long piece can stay.
        self.tail.extend(&rest[rest.len().saturating_sub(TEXT / 2)..]);
        let over = self.tail.len().saturating_sub(TEXT / 2);
        self.tail.drain(..over);
    }

    fn text(&self) -> String {
        let kept = (self.head.len() + self.tail.len()) as u64;
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if kept == self.total {
            return String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned();
        }
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail));
        format!("{head}\n[{} bytes left out]\n{tail}", self.total - kept)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Chunk, HEAD, KEPT, Spool, TAIL, TEXT};
    use crate::engine::{Frame, Stream};

    fn frame(stream: Stream, bytes: &[u8]) -> Frame {
        Frame { stream, bytes: Bytes::copy_from_slice(bytes) }
    }

    fn read(spool: &Spool, from: u64) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let mut offset = from;
        while let Some(chunk) = spool.after(offset) {
            offset = chunk.end();
            chunks.push(chunk);
        }
        chunks
    }

    #[test]
    fn a_reader_may_come_back_at_any_offset() {
        let mut spool = Spool::default();
        for (stream, bytes) in
            [(Stream::Stdout, "one "), (Stream::Stdout, "two "), (Stream::Stderr, "err")]
        {
            spool.push(frame(stream, bytes.as_bytes()), u64::MAX);
        }
        let all: Vec<u8> = read(&spool, 0).iter().flat_map(|chunk| chunk.bytes.to_vec()).collect();
        assert_eq!(all, b"one two err");
        for offset in 0..=11 {
            let rest: Vec<u8> =
                read(&spool, offset).iter().flat_map(|chunk| chunk.bytes.to_vec()).collect();
            assert_eq!(rest, all[usize::try_from(offset).unwrap()..]);
        }
        assert_eq!((spool.bytes(Stream::Stdout), spool.bytes(Stream::Stderr)), (8, 3));
    }

    #[test]
    fn a_flood_keeps_its_beginning_and_its_end() {
        let mut spool = Spool::default();
        let piece = [b'x'; 32 * 1024];
        for _ in 0..200 {
            spool.push(frame(Stream::Stdout, &piece), u64::MAX);
        }
        spool.push(frame(Stream::Stderr, b"last"), u64::MAX);
        let chunks = read(&spool, 0);
        let held: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        assert!(held <= HEAD + TAIL && held > HEAD, "{held}");
        assert_eq!(chunks.last().unwrap().bytes, Bytes::from_static(b"last"));
        assert_eq!(chunks.last().unwrap().end(), spool.total());
        let kept: u64 = spool.kept().iter().map(|chunk| chunk.bytes.len() as u64).sum();
        assert_eq!(kept, 2 * KEPT);
        let text = spool.text(Stream::Stdout);
        assert!(text.len() < TEXT + 100 && text.contains("bytes left out"), "{}", text.len());
        assert_eq!(spool.text(Stream::Stderr), "last");
    }

    #[test]
    fn a_short_output_is_kept_once() {
        let mut spool = Spool::default();
        spool.push(frame(Stream::Stdout, b"all of it"), u64::MAX);
        assert_eq!(spool.kept().len(), 1);
        spool.push(frame(Stream::Stdout, b"more"), 2);
        assert_eq!(spool.text(Stream::Stdout), "all of itmo");
    }
}
