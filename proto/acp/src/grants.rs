//! Standing allows of a run: as they are listed and taken back. It shows them and never judges whether they still hold.
use event::id::ReceiptId;
use event::{NotAStamp, parse_stamp, stamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::OffsetDateTime;

use crate::limit::MAX_GRANTS;
use crate::number::Seq;
use crate::strict::{self, Object};
use crate::text::{ActionName, Id, Person, SubjectText};

/// Only for a client that offered `sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantListParams {
    pub session_id: Id,
}

/// Only for a client that offered `sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantRevokeParams {
    pub session_id: Id,
    pub receipt_id: Id,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantListAnswer {
    /// In the order they were given.
    #[serde(deserialize_with = "grants")]
    pub grants: Vec<RunGrant>,
}

/// An allow that holds for the same action in the rest of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunGrant {
    pub receipt_id: ReceiptId,
    pub action: ActionName,
    /// For people; the gateway cuts a longer one.
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub subject: Option<SubjectText>,
    pub by: Person,
    pub at: Moment,
    pub expires_at: Moment,
    /// Later calls that it was used for.
    pub uses: Seq,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantRevokeAnswer {
    /// False when it stood no more.
    pub revoked: bool,
    /// Its executor cannot be told now; it is told again until it knows. Nothing rests on it here any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
}

fn grants<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<RunGrant>, D::Error> {
    let grants: Vec<Object<RunGrant>> = Vec::deserialize(source)?;
    match grants.len() <= MAX_GRANTS {
        true => Ok(grants.into_iter().map(|Object(grant)| grant).collect()),
        false => Err(serde::de::Error::custom("more standing allows than may be listed")),
    }
}

/// A moment that has a text: RFC 3339 in UTC with six digits of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(OffsetDateTime);

impl Moment {
    /// What is finer than a microsecond is dropped.
    pub fn new(at: OffsetDateTime) -> Result<Self, NotAStamp> {
        parse_stamp(&stamp(at)?).map(Self)
    }

    #[must_use]
    pub fn get(self) -> OffsetDateTime {
        self.0
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&stamp(self.0).map_err(serde::ser::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        parse_stamp(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = concat!(
        r#"{"grants":[{"receiptId":"0198f000-0000-7000-8000-00000000000b","action":"process.exec","#,
        r#""subject":"cargo test","by":"alice","at":"2026-11-29T15:22:00.123456Z","#,
        r#""expiresAt":"2026-11-30T03:22:00.000000Z","uses":3}]}"#,
    );

    fn read(text: &str) -> Result<GrantListAnswer, serde_json::Error> {
        serde_json::from_str::<Object<GrantListAnswer>>(text).map(|Object(answer)| answer)
    }

    #[test]
    fn a_list_of_standing_allows_is_read_as_it_is_written() {
        let answer = read(LISTED).expect("a list");
        assert_eq!(serde_json::to_string(&answer).expect("JSON"), LISTED);
        let bare = LISTED.replace(r#""subject":"cargo test","#, "");
        assert_eq!(read(&bare).expect("a list").grants[0].subject, None);
        for bad in [
            LISTED.replace("0198f000", "0198F000"),
            LISTED.replace(".123456Z", "Z"),
            LISTED.replace(r#""uses":3"#, r#""uses":-1"#),
            LISTED.replace(r#""uses":3"#, r#""uses":3,"scope":"run""#),
            LISTED.replace(r#""subject":"cargo test""#, r#""subject":null"#),
            LISTED.replace(r#""by":"alice","#, ""),
            LISTED.replace("process.exec", ""),
            r#"{"grants":[[]]}"#.to_owned(),
            "[]".to_owned(),
        ] {
            assert_ne!(bad, LISTED);
            assert!(read(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_longest_list_fits_a_message() {
        let text = |length: usize| "\u{1}".repeat(length);
        let at = Moment::new(OffsetDateTime::UNIX_EPOCH).expect("a moment");
        let grant = RunGrant {
            receipt_id: ReceiptId::nil(),
            action: ActionName::new("a".repeat(64)).expect("fits"),
            subject: Some(SubjectText::new(text(512)).expect("fits")),
            by: Person::new(text(256)).expect("fits"),
            at,
            expires_at: at,
            uses: Seq::try_from(1_u64 << 52).expect("safe"),
        };
        let answer = GrantListAnswer { grants: vec![grant; MAX_GRANTS] };
        let message =
            crate::encode_success(&crate::RequestId::Number(i64::MAX), &answer).expect("JSON");
        assert!(message.len() <= crate::MAX_DELIVERY, "{}", message.len());
        let more = serde_json::to_string(&answer).expect("JSON").replacen(
            r#"{"grants":["#,
            &format!(r#"{{"grants":[{},"#, serde_json::to_string(&answer.grants[0]).expect("JSON")),
            1,
        );
        assert!(read(&more).is_err());
    }
}
