//! The settings of audit-svc; parsed values only. It never opens the ledger.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use transport::{Args, Validate};

/// The ledger of Harness: appends and proves, never edits
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "harness-audit-svc", version)]
pub struct Config {
    #[command(flatten)]
    pub transport: Args,

    /// Address for the other services
    #[arg(long, value_name = "ADDR")]
    pub listen: SocketAddr,

    /// Address for auditors and their certificates
    #[arg(long, value_name = "ADDR")]
    pub auditors_listen: SocketAddr,

    /// Directory of the ledger; this process must be its only owner
    #[arg(long, value_name = "DIR")]
    pub state_dir: PathBuf,

    /// Name of this log, such as ledger.example.com/2026; every entry carries it and it never changes
    #[arg(long, value_name = "NAME")]
    pub origin: Origin,
}

impl Validate for Config {
    fn transport(&self) -> &Args {
        &self.transport
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.listen == self.auditors_listen && self.listen.port() != 0 {
            faults.push(
                "listen and auditors-listen are the same address; give each its own".to_owned(),
            );
        }
        if self.state_dir.exists() && !self.state_dir.is_dir() {
            let dir = self.state_dir.display();
            faults.push(format!(
                "state-dir {dir} is not a directory; name one that this user may write"
            ));
        }
        faults
    }
}

/// The name of one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(String);

/// The text cannot name a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a log; use 1 to 128 letters, digits and any of . _ - /")]
pub struct NotAnOrigin;

impl Origin {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Origin {
    type Err = NotAnOrigin;

    fn from_str(text: &str) -> Result<Self, NotAnOrigin> {
        let fits =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/');
        if (1..=128).contains(&text.len()) && text.bytes().all(fits) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAnOrigin)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_one_line_without_blanks() {
        assert_eq!(
            "ledger.example.com/2026".parse::<Origin>().map(|origin| origin.0),
            Ok("ledger.example.com/2026".into())
        );
        for text in ["", "a b", "a\n", "a+b", &"a".repeat(129)] {
            assert_eq!(text.parse::<Origin>(), Err(NotAnOrigin), "{text:?}");
        }
    }
}
