//! The first bytes of a tunnel to port 443: a TLS ClientHello that names the host which was asked for. The bytes are
//! read, never answered, and go on unchanged.

use rustls::server::Acceptor;

/// A ClientHello larger than this is not one that anybody sends.
pub(crate) const HELLO_BYTES: usize = 64 * 1024;

/// The first bytes of a tunnel, fed as they come.
pub struct Hello {
    acceptor: Acceptor,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadHello {
    #[error("it is not a TLS ClientHello")]
    NotTls,
    #[error("it names no server")]
    NoName,
    #[error("it names another server")]
    OtherName,
}

impl Hello {
    pub fn new() -> Self {
        Self { acceptor: Acceptor::default(), bytes: Vec::new() }
    }

    /// Whether the hello is complete and right; then [`Self::into_bytes`] is what goes on.
    pub fn feed(&mut self, bytes: &[u8], host: &str) -> Result<bool, BadHello> {
        self.bytes.extend_from_slice(bytes);
        // What is no handshake record is refused by its first byte, not after a wait for the rest.
        if self.bytes.first().is_some_and(|first| *first != 0x16) || self.bytes.len() > HELLO_BYTES
        {
            return Err(BadHello::NotTls);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            self.acceptor.read_tls(&mut rest).map_err(|_| BadHello::NotTls)?;
            match self.acceptor.accept() {
                Ok(None) => (),
                Ok(Some(accepted)) => {
                    let hello = accepted.client_hello();
                    let name = hello.server_name().ok_or(BadHello::NoName)?;
                    // Rust compares what a server would: names without case.
                    let same = name.eq_ignore_ascii_case(host);
                    return if same { Ok(true) } else { Err(BadHello::OtherName) };
                }
                Err(_) => return Err(BadHello::NotTls),
            }
        }
        Ok(false)
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Default for Hello {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}
