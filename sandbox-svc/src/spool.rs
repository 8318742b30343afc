//! What a command wrote, bounded: the beginning and the end of it by offset, and of each stream as text. It
//! never grows with the output.

use std::collections::VecDeque;

use bytes::Bytes;

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

/// A piece as it is kept: its own memory, so that a byte never holds on to the frame that it came in.
#[derive(Debug)]
struct Piece {
    offset: u64,
    stream: Stream,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// What of it lies in `from..to`.
    fn part(&self, from: u64, to: u64) -> Option<Chunk> {
        let (start, end) = (self.offset.max(from), self.end().min(to));
        let range = usize::try_from(start.checked_sub(self.offset)?).ok()?
            ..usize::try_from(end.checked_sub(self.offset)?).ok()?;
        let bytes = self.bytes.get(range).filter(|bytes| !bytes.is_empty())?;
        let bytes = Bytes::copy_from_slice(bytes);
        Some(Chunk { offset: start, stream: self.stream, bytes })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Spool {
    head: VecDeque<Piece>,
    head_bytes: usize,
    tail: VecDeque<Piece>,
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
        let Frame { stream, bytes } = frame;
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(left)];
        let offset = self.total();
        match stream {
            Stream::Stdout => self.stdout.push(bytes),
            Stream::Stderr => self.stderr.push(bytes),
        }
        let room = HEAD.saturating_sub(self.head_bytes);
        let (head, tail) = bytes.split_at(bytes.len().min(room));
        self.head_bytes += head.len();
        keep(&mut self.head, offset, stream, head);
        self.tail_bytes += tail.len();
        keep(&mut self.tail, offset + head.len() as u64, stream, tail);
        while self.tail_bytes > TAIL
            && let Some(first) = self.tail.pop_front()
        {
            self.tail_bytes -= first.bytes.len();
        }
    }

    /// The first piece at or behind `offset` that is still here.
    pub(crate) fn after(&self, offset: u64) -> Option<Chunk> {
        let at = self.head.partition_point(|piece| piece.end() <= offset);
        let piece = self.head.get(at).or_else(|| {
            let at = self.tail.partition_point(|piece| piece.end() <= offset);
            self.tail.get(at)
        });
        piece.and_then(|piece| piece.part(offset, u64::MAX))
    }

    /// Beginning and end for later readers.
    pub(crate) fn kept(&self) -> Vec<Chunk> {
        let total = self.total();
        let end = total.saturating_sub(KEPT).max(KEPT);
        let all = || self.head.iter().chain(&self.tail);
        let begin = all().filter_map(|piece| piece.part(0, KEPT));
        begin.chain(all().filter_map(|piece| piece.part(end, u64::MAX))).collect()
    }

    pub(crate) fn text(&self, stream: Stream) -> String {
        self.clip(stream).text()
    }

    /// How many bytes the text leaves out between its beginning and its end.
    pub(crate) fn left_out(&self, stream: Stream) -> u64 {
        self.clip(stream).left_out()
    }

    fn clip(&self, stream: Stream) -> &Clip {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }
}

/// Small neighbours of one stream become one piece.
fn keep(pieces: &mut VecDeque<Piece>, offset: u64, stream: Stream, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    match pieces.back_mut() {
        Some(last) if last.stream == stream && last.bytes.len() + bytes.len() <= CHUNK => {
            last.bytes.extend_from_slice(bytes);
        }
        Some(_) | None => pieces.push_back(Piece { offset, stream, bytes: bytes.to_vec() }),
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

    fn left_out(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    fn text(&self) -> String {
        let left_out = self.left_out();
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if left_out == 0 {
            return String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned();
        }
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail));
        format!("{head}\n[{left_out} bytes left out]\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{CHUNK, Chunk, HEAD, KEPT, Spool, TAIL, TEXT};
    use crate::engine::{Frame, Stream};

    fn frame(stream: Stream, bytes: &[u8]) -> Frame {
        Frame { stream, bytes: Bytes::copy_from_slice(bytes) }
    }

    fn end(chunk: &Chunk) -> u64 {
        chunk.offset + chunk.bytes.len() as u64
    }

    fn read(spool: &Spool, from: u64) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let mut offset = from;
        while let Some(chunk) = spool.after(offset) {
            offset = end(&chunk);
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
        assert_eq!(end(chunks.last().unwrap()), spool.total());
        let kept: u64 = spool.kept().iter().map(|chunk| chunk.bytes.len() as u64).sum();
        assert_eq!(kept, 2 * KEPT);
        let text = spool.text(Stream::Stdout);
        assert!(text.len() < TEXT + 100 && text.contains("bytes left out"), "{}", text.len());
        assert_eq!(spool.text(Stream::Stderr), "last");
        let left_out = spool.bytes(Stream::Stdout) - TEXT as u64;
        assert_eq!(spool.left_out(Stream::Stdout), left_out);
        assert_eq!(spool.left_out(Stream::Stderr), 0);
    }

    #[test]
    fn single_bytes_are_kept_together_and_hold_no_more_than_themselves() {
        let mut spool = Spool::default();
        let large = Bytes::from(vec![b'x'; 1 << 20]);
        let count = HEAD + 2 * TAIL;
        for at in 0..count {
            let bytes = large.slice(at % 1024..at % 1024 + 1);
            spool.push(Frame { stream: Stream::Stdout, bytes }, u64::MAX);
        }
        drop(large);
        let pieces = spool.head.iter().chain(&spool.tail);
        let held: usize = pieces.map(|piece| piece.bytes.capacity()).sum();
        assert!(held <= 2 * (HEAD + TAIL), "{held}");
        assert!(spool.head.len() + spool.tail.len() <= 2 * (HEAD + TAIL) / CHUNK);
        assert_eq!(spool.total(), count as u64);
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
