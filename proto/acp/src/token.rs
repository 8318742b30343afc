//! API tokens: their form, and the file that holds their digests. A token is shown once by whoever mints it; nothing
//! here stores one, and the randomness comes from the caller.
use std::fmt;

use event::Digest;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

const PREFIX: &str = "hns";
const ID: usize = 8;
const SECRET: usize = 43;
const CHECK: usize = 6;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// How many random bytes a token is made of: 32 for the secret, 6 for the id.
pub const RANDOM_BYTES: usize = 38;

/// `hns_<8 base62>_<43 base62>_<6 hex>`: id, secret, and a checksum by which a scanner or a typing error is told from a
/// wrong token. It has no `Display`: to write it somewhere one must say `reveal`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The text has not the form of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotToken {
    #[error("a token has the form hns_<id>_<secret>_<check>")]
    Form,
    #[error("the token's checksum is wrong: a character is missing or mistyped")]
    Check,
}

impl Token {
    /// Makes a token of bytes that nobody can guess.
    #[must_use]
    pub fn mint(random: &[u8; RANDOM_BYTES]) -> Self {
        let (secret, id) = random.split_at(32);
        let body = format!("{PREFIX}_{}_{}", base62(id, ID), base62(secret, SECRET));
        let check = check(&body);
        Self(format!("{body}_{check}"))
    }

    pub fn parse(text: &str) -> Result<Self, NotToken> {
        let mut parts = text.split('_');
        let (Some(PREFIX), Some(id), Some(secret), Some(found), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotToken::Form);
        };
        let word = |word: &str, length| {
            word.len() == length && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        if !word(id, ID) || !word(secret, SECRET) || found.len() != CHECK {
            return Err(NotToken::Form);
        }
        let body = &text[..text.len() - CHECK - 1];
        match check(body) == found {
            true => Ok(Self(text.to_owned())),
            false => Err(NotToken::Check),
        }
    }

    /// The public part, by which the token is found and named.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0[PREFIX.len() + 1..PREFIX.len() + 1 + ID]
    }

    /// What is stored instead of the token.
    #[must_use]
    pub fn sha256(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }

    /// [`Self::sha256`] as the tokens file writes it.
    #[must_use]
    pub fn sha256_hex(&self) -> String {
        hex::encode(self.sha256().as_bytes())
    }

    /// The token itself, for the person it is made for and for the header it is sent in.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Token({})", self.id())
    }
}

/// The tokens file: `[[token]]` tables. The CLI writes it, the gateway reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    #[serde(default)]
    pub token: Vec<Entry>,
}

/// One token: whom it speaks for and until when. It is found by `id` and compared by digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub id: String,
    /// 64 hexadecimal digits.
    pub sha256: String,
    pub tenant: String,
    pub subject: String,
    pub roles: Vec<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub expires: OffsetDateTime,
}

/// Big-endian bytes as base 62 with exactly `width` digits; what does not fit is dropped from the top.
fn base62(bytes: &[u8], width: usize) -> String {
    let mut number = bytes.to_vec();
    let mut digits = vec![0_u8; width];
    for digit in digits.iter_mut().rev() {
        let mut rest = 0_u32;
        for byte in &mut number {
            let value = rest * 256 + u32::from(*byte);
            rest = value % 62;
            // value < 62 * 256, so the quotient fits a byte.
            *byte = u8::try_from(value / 62).unwrap_or(u8::MAX);
        }
        *digit = ALPHABET[rest as usize];
    }
    digits.into_iter().map(char::from).collect()
}

/// The low 24 bits of the CRC-32 that zip and Ethernet use, in hexadecimal.
fn check(body: &str) -> String {
    let mut crc = u32::MAX;
    for byte in body.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        }
    }
    format!("{:06x}", !crc & 0x00FF_FFFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_checksum_is_the_well_known_crc() {
        // CRC-32 of "123456789" is cbf43926.
        assert_eq!(check("123456789"), "f43926");
    }

    #[test]
    fn a_minted_token_has_the_form_and_its_digest_is_of_the_whole() {
        let token = Token::mint(&[0xFF; RANDOM_BYTES]);
        assert_eq!(token.reveal().len(), "hns_".len() + 8 + 1 + 43 + 1 + 6);
        assert_eq!(token.sha256(), Digest::of(token.reveal().as_bytes()));
        assert_eq!(format!("{token:?}"), format!("Token({})", token.id()));
        assert_eq!(Token::mint(&[0; RANDOM_BYTES]).id(), "00000000");
    }

    #[test]
    fn other_text_is_no_token() {
        let good = Token::mint(&[7; RANDOM_BYTES]).reveal().to_owned();
        for bad in [
            "",
            "hns",
            "hns___",
            "Bearer x",
            &good.replace("hns", "hnx"),
            &good[1..],
            &format!("{good}_"),
        ] {
            assert_eq!(Token::parse(bad), Err(NotToken::Form), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn minted_tokens_parse_and_one_changed_character_is_noticed(
            random in proptest::array::uniform32(any::<u8>()), at in 4_usize..56, by in 1_u8..62,
        ) {
            let mut bytes = [0; RANDOM_BYTES];
            bytes[..32].copy_from_slice(&random);
            let token = Token::mint(&bytes);
            prop_assert_eq!(Token::parse(token.reveal()), Ok(token.clone()));

            let mut text = token.reveal().as_bytes().to_vec();
            if let Some(place) = ALPHABET.iter().position(|digit| *digit == text[at]) {
                text[at] = ALPHABET[(place + by as usize) % 62];
                let text = String::from_utf8(text).expect("ASCII");
                prop_assert_eq!(Token::parse(&text), Err(NotToken::Check));
            }
        }
    }
}
