//! The methods: name, parameters, answer. It decides which parameters are a method's, never who may call it.
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::answer::{
    AttachAnswer, CancelAnswer, InitializeAnswer, NewAnswer, PromptAnswer, RespondAnswer,
};
use crate::grants::{GrantListAnswer, GrantListParams, GrantRevokeAnswer, GrantRevokeParams};
use crate::params::{
    AttachParams, CancelParams, Decision, InitializeParams, NewParams, PatchReadParams,
    PatchUndoParams, PromptParams, RespondParams,
};
use crate::patch::PatchPage;
use crate::strict::Object;

/// The one notification, from the gateway to clients.
pub const SESSION_EVENT: &str = "session/event";

/// One method of the dialect.
pub trait Method {
    const NAME: &'static str;
    /// How long a client waits for the answer; `None` where people decide how long it takes.
    const TIMEOUT: Option<Duration> = Some(Duration::from_mins(10));
    type Params: Serialize + DeserializeOwned;
    type Answer: Serialize + DeserializeOwned;
}

macro_rules! method {
    ($name:ident, $wire:literal, $params:ty, $answer:ty $(, $timeout:expr)?) => {
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}
        impl Method for $name {
            const NAME: &'static str = $wire;
            $(const TIMEOUT: Option<Duration> = $timeout;)?
            type Params = $params;
            type Answer = $answer;
        }
    };
}

method!(Initialize, "initialize", InitializeParams, InitializeAnswer);
method!(NewSession, "session/new", NewParams, NewAnswer);
// Answers when the run has ended, however long a person thinks; the connection's own keepalive bounds the wait.
method!(Prompt, "session/prompt", PromptParams, PromptAnswer, None);
// It is a run as well.
method!(PatchUndo, "patch/undo", PatchUndoParams, PromptAnswer, None);
method!(Respond, "permission/respond", RespondParams, RespondAnswer);
method!(Cancel, "session/cancel", CancelParams, CancelAnswer);
method!(Attach, "session/attach", AttachParams, AttachAnswer);
method!(GrantList, "grant/list", GrantListParams, GrantListAnswer);
method!(GrantRevoke, "grant/revoke", GrantRevokeParams, GrantRevokeAnswer);
// A large copy is read through for each page.
method!(PatchRead, "patch/read", PatchReadParams, PatchPage, Some(Duration::from_mins(2)));

/// A request whose parameters are what its method asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Initialize(InitializeParams),
    NewSession(NewParams),
    Prompt(PromptParams),
    Respond(RespondParams),
    Cancel(CancelParams),
    Attach(AttachParams),
    PatchRead(PatchReadParams),
    PatchUndo(PatchUndoParams),
    GrantList(GrantListParams),
    GrantRevoke(GrantRevokeParams),
}

/// Why a request is none of the calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallRefused {
    MethodNotFound,
    InvalidParams(String),
    /// An answer that names an ask but does not say what the person decided.
    MalformedAnswer(Malformed),
}

/// What could still be read of a malformed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub session_id: String,
    pub permission_id: String,
    pub detail: String,
}

impl Call {
    /// `sessions`: the client offered our extension, so its methods and members exist for it.
    pub fn decode(
        method: &str,
        params: Option<&RawValue>,
        sessions: bool,
    ) -> Result<Self, CallRefused> {
        match method {
            Initialize::NAME => read(params).map(Self::Initialize),
            NewSession::NAME => match read(params)? {
                NewParams { on_disconnect: Some(_), .. } if !sessions => {
                    Err(CallRefused::InvalidParams(
                        "onDisconnect needs the sessions capability".to_owned(),
                    ))
                }
                params => Ok(Self::NewSession(params)),
            },
            Prompt::NAME => read(params).map(Self::Prompt),
            Respond::NAME => read(params)
                .and_then(consistent)
                .map(Self::Respond)
                .map_err(|refused| addressed(params, refused)),
            Cancel::NAME => read(params).map(Self::Cancel),
            Attach::NAME if sessions => read(params).map(Self::Attach),
            PatchRead::NAME if sessions => read(params).and_then(one_patch).map(Self::PatchRead),
            PatchUndo::NAME if sessions => read(params).map(Self::PatchUndo),
            GrantList::NAME if sessions => read(params).map(Self::GrantList),
            GrantRevoke::NAME if sessions => read(params).map(Self::GrantRevoke),
            _ => Err(CallRefused::MethodNotFound),
        }
    }
}

/// The plan of an ask says which patch it is.
fn one_patch(params: PatchReadParams) -> Result<PatchReadParams, CallRefused> {
    match &params {
        PatchReadParams { permission_id: Some(_), digest, paths, .. }
            if digest.is_some() || !paths.is_empty() =>
        {
            let why = "digest and paths need no permissionId beside them".to_owned();
            Err(CallRefused::InvalidParams(why))
        }
        PatchReadParams { paths, .. } if paths.len() > crate::MAX_PATCH_PATHS => {
            let why = format!("paths must be at most {}", crate::MAX_PATCH_PATHS);
            Err(CallRefused::InvalidParams(why))
        }
        _ => Ok(params),
    }
}

/// Nobody signs for a no.
fn consistent(params: RespondParams) -> Result<RespondParams, CallRefused> {
    match (params.decision, &params.approval) {
        (Decision::Deny, Some(_)) => {
            Err(CallRefused::InvalidParams("approval needs the decision allow".to_owned()))
        }
        (Decision::Allow | Decision::Deny, _) => Ok(params),
    }
}

fn read<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, CallRefused> {
    let params =
        params.ok_or_else(|| CallRefused::InvalidParams("params are missing".to_owned()))?;
    serde_json::from_str::<Object<T>>(params.get())
        .map(|Object(params)| params)
        .map_err(|error| CallRefused::InvalidParams(format!("params: {error}")))
}

/// Keeps the address of an answer that cannot be read, so that its ask can be denied instead of left hanging.
fn addressed(params: Option<&RawValue>, refused: CallRefused) -> CallRefused {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Address {
        session_id: String,
        permission_id: String,
    }
    let address =
        params.and_then(|params| serde_json::from_str::<Object<Address>>(params.get()).ok());
    match (address, refused) {
        (
            Some(Object(Address { session_id, permission_id })),
            CallRefused::InvalidParams(detail),
        ) => CallRefused::MalformedAnswer(Malformed { session_id, permission_id, detail }),
        (_, refused) => refused,
    }
}

#[cfg(test)]
mod tests {
    use event::id::RunId;

    use super::*;
    use crate::text::Id;

    fn call(method: &str, params: &str, sessions: bool) -> Result<Call, CallRefused> {
        let params: &RawValue = serde_json::from_str(params).expect("JSON");
        Call::decode(method, Some(params), sessions)
    }

    fn id(text: &str) -> Id {
        Id::new(text).expect("fits")
    }

    fn invalid(method: &str, params: &str) -> String {
        match call(method, params, true) {
            Err(CallRefused::InvalidParams(detail)) => detail,
            other => panic!("{method} {params}: {other:?}"),
        }
    }

    #[test]
    fn an_answer_is_read_with_its_digest_and_scope() {
        let digest = event::Digest::of(b"plan");
        let params = format!(
            r#"{{"sessionId":"s","permissionId":"p","decision":"deny","planDigest":"{digest}"}}"#
        );
        let expected = RespondParams {
            session_id: id("s"),
            permission_id: id("p"),
            decision: Decision::Deny,
            note: None,
            plan_digest: Some(digest),
            scope: None,
            approval: None,
        };
        assert_eq!(call("permission/respond", &params, false), Ok(Call::Respond(expected)));
    }

    #[test]
    fn an_allow_may_bring_the_persons_own_signature_and_a_no_may_not() {
        let (signature, key) = ("0f".repeat(64), event::Digest::of(b"key"));
        let params = |decision: &str, approval: &str| {
            format!(
                r#"{{"sessionId":"s","permissionId":"p","decision":"{decision}","approval":{approval}}}"#
            )
        };
        let approval = format!(r#"{{"payload":"e30=","signature":"{signature}","keyId":"{key}"}}"#);
        match call("permission/respond", &params("allow", &approval), false) {
            Ok(Call::Respond(RespondParams { approval: Some(approval), .. })) => {
                assert_eq!(approval.payload.as_str(), "e30=");
                assert_eq!((approval.signature.as_str(), approval.key_id), (&*signature, key));
            }
            other => panic!("{other:?}"),
        }
        let array = format!(r#"["e30=","{signature}","{key}"]"#);
        for (decision, approval) in [
            ("deny", approval.as_str()),
            ("allow", "null"),
            ("allow", "{}"),
            ("allow", &array),
            ("allow", &approval.replace("e30=", "e3")),
        ] {
            let refused = call("permission/respond", &params(decision, approval), true);
            assert!(matches!(refused, Err(CallRefused::MalformedAnswer(_))), "{refused:?}");
        }
    }

    #[test]
    fn a_malformed_answer_keeps_its_address() {
        for params in [
            r#"{"sessionId":"s","permissionId":"p","decision":"yes"}"#,
            r#"{"sessionId":"s","permissionId":"p"}"#,
            r#"{"sessionId":"s","permissionId":"p","decision":"allow","always":true}"#,
            r#"{"sessionId":"s","permissionId":"p","decision":"allow","note":null}"#,
        ] {
            match call("permission/respond", params, true) {
                Err(CallRefused::MalformedAnswer(Malformed {
                    session_id, permission_id, ..
                })) => {
                    assert_eq!((session_id.as_str(), permission_id.as_str()), ("s", "p"));
                }
                other => panic!("{params}: {other:?}"),
            }
        }
        assert!(
            invalid("permission/respond", r#"{"sessionId":"s","decision":"allow"}"#)
                .contains("permissionId")
        );
    }

    #[test]
    fn arrays_nulls_and_unknown_or_repeated_members_are_refused() {
        invalid("session/cancel", r#"["s"]"#);
        invalid("session/cancel", r#"{"sessionId":"s","sessionId":"t"}"#);
        invalid("session/cancel", r#"{"sessionId":"s","force":true}"#);
        invalid("session/new", r#"{"workspace":"w","taskId":null}"#);
        invalid(
            "initialize",
            r#"{"protocolVersion":"v","clientName":"c","capabilities":[true,true,true]}"#,
        );
        assert_eq!(
            Call::decode("session/cancel", None, true),
            Err(CallRefused::InvalidParams("params are missing".to_owned()))
        );
    }

    #[test]
    fn limits_hold_at_the_byte() {
        for (member, max) in [("workspace", 4096), ("model", 256)] {
            let params = |length: usize| match member {
                "workspace" => format!(r#"{{"workspace":"{}"}}"#, "x".repeat(length)),
                _ => format!(r#"{{"workspace":"w","model":"{}"}}"#, "x".repeat(length)),
            };
            assert!(call("session/new", &params(max), false).is_ok());
            assert!(call("session/new", &params(max + 1), false).is_err());
        }
        let prompt =
            |length: usize| format!(r#"{{"sessionId":"s","content":"{}"}}"#, "x".repeat(length));
        assert!(call("session/prompt", &prompt(crate::MAX_CONTENT), false).is_ok());
        assert!(call("session/prompt", &prompt(crate::MAX_CONTENT + 1), false).is_err());
        assert!(call("session/prompt", &prompt(0), false).is_err());
        assert!(
            call("session/prompt", r#"{"sessionId":"s","content":"x","maxToolCalls":0}"#, false)
                .is_err()
        );
    }

    #[test]
    fn the_extension_exists_only_for_those_who_offered_it() {
        let attach = r#"{"runId":"r","afterSeq":-1}"#;
        assert_eq!(call("session/attach", attach, false), Err(CallRefused::MethodNotFound));
        let expected = AttachParams {
            target: crate::AttachTarget::Run(id("r")),
            after_seq: Some(crate::Cursor::NONE),
        };
        assert_eq!(call("session/attach", attach, true), Ok(Call::Attach(expected)));
        invalid("session/attach", r#"{"runId":"r","sessionId":"s"}"#);
        invalid("session/attach", r#"{"afterSeq":1}"#);

        let patch = r#"{"sessionId":"s","permissionId":"p"}"#;
        assert_eq!(call("patch/read", patch, false), Err(CallRefused::MethodNotFound));
        let expected = PatchReadParams {
            session_id: id("s"),
            permission_id: Some(id("p")),
            digest: None,
            paths: Vec::new(),
            format: None,
            offset: None,
        };
        assert_eq!(call("patch/read", patch, true), Ok(Call::PatchRead(expected)));
        for offset in ["-1", "1.0", "null", "9007199254740992", "\"0\""] {
            let params = format!(r#"{{"sessionId":"s","permissionId":"p","offset":{offset}}}"#);
            invalid("patch/read", &params);
        }
        let of_run = r#"{"sessionId":"s","paths":["src"]}"#;
        assert!(matches!(call("patch/read", of_run, true), Ok(Call::PatchRead(_))));
        invalid("patch/read", r#"{"sessionId":"s","permissionId":"p","paths":["src"]}"#);
        invalid("patch/read", r#"{"sessionId":"s","paths":[""]}"#);
        invalid("patch/read", r#"{"sessionId":"s","permissionId":"p","whole":true}"#);

        let (run, digest) = (RunId::new(), event::Digest::of(b"patch"));
        let undo = format!(r#"{{"sessionId":"s","runId":"{run}","digest":"{digest}"}}"#);
        assert_eq!(call("patch/undo", &undo, false), Err(CallRefused::MethodNotFound));
        let expected = PatchUndoParams { session_id: id("s"), run_id: run, digest: Some(digest) };
        assert_eq!(call("patch/undo", &undo, true), Ok(Call::PatchUndo(expected)));
        invalid("patch/undo", r#"{"sessionId":"s"}"#);
        invalid("patch/undo", r#"{"sessionId":"s","runId":"r"}"#);
        invalid("patch/undo", &undo.replace("sha256:", "sha1:"));
        invalid("patch/undo", &undo.replace("\"digest\"", "\"paths\""));

        let list = r#"{"sessionId":"s"}"#;
        assert_eq!(call("grant/list", list, false), Err(CallRefused::MethodNotFound));
        let expected = GrantListParams { session_id: id("s") };
        assert_eq!(call("grant/list", list, true), Ok(Call::GrantList(expected)));
        invalid("grant/list", r#"{"sessionId":"s","all":true}"#);
        let revoke = r#"{"sessionId":"s","receiptId":"r"}"#;
        assert_eq!(call("grant/revoke", revoke, false), Err(CallRefused::MethodNotFound));
        let expected = GrantRevokeParams { session_id: id("s"), receipt_id: id("r") };
        assert_eq!(call("grant/revoke", revoke, true), Ok(Call::GrantRevoke(expected)));
        invalid("grant/revoke", list);

        let hold = r#"{"workspace":"w","onDisconnect":"hold"}"#;
        assert!(call("session/new", hold, true).is_ok());
        assert!(matches!(call("session/new", hold, false), Err(CallRefused::InvalidParams(_))));
        assert_eq!(call("session/restore", "{}", true), Err(CallRefused::MethodNotFound));
    }
}
