//! What crosses the wire of an error, and what stays home.
use std::io;

use super::*;

#[derive(Debug, thiserror::Error)]
enum Sample {
    #[error("no room for another sandbox")]
    Full,
    #[error("cannot store the run")]
    Store(#[source] io::Error),
}

impl Public for Sample {
    const DOMAIN: &'static str = "sandbox-svc";

    fn code(&self) -> Code {
        match self {
            Self::Full => Code::ResourceExhausted,
            Self::Store(_) => Code::Internal,
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Full => "SANDBOX_FULL",
            Self::Store(_) => "STORE_FAILED",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        matches!(self, Self::Full).then(|| Duration::from_secs(3))
    }
}

fn over_the_wire(status: &Status) -> Status {
    let mut headers = HeaderMap::new();
    status.add_header(&mut headers).unwrap();
    Status::from_header_map(&headers).unwrap()
}

#[test]
fn a_caller_reads_code_reason_and_delay() {
    assert_eq!(
        Fault::from(over_the_wire(&to_status(&Sample::Full))),
        Fault {
            code: Code::ResourceExhausted,
            reason: "SANDBOX_FULL".to_owned(),
            message: "no room for another sandbox".to_owned(),
            retry_after: Some(Duration::from_secs(3)),
        }
    );
}

#[test]
fn an_internal_cause_stays_home() {
    let status = to_status(&Sample::Store(io::Error::other("disk /var/lib/secret is full")));
    let mut headers = HeaderMap::new();
    status.add_header(&mut headers).unwrap();
    assert!(!format!("{headers:?}{:?}", status.details()).contains("secret"));
    assert_eq!(
        Fault::from(status),
        Fault {
            code: Code::Internal,
            reason: "STORE_FAILED".to_owned(),
            message: "internal error".to_owned(),
            retry_after: None,
        }
    );
}

#[test]
fn what_the_library_says_gets_a_reason_and_keeps_internal_texts_at_home() {
    for (status, code, reason, message) in [
        (
            Status::out_of_range("too big"),
            tonic::Code::ResourceExhausted,
            "MESSAGE_TOO_LARGE",
            "too big",
        ),
        (
            Status::data_loss("row 17 of secret"),
            tonic::Code::Internal,
            "INTERNAL",
            "internal error",
        ),
        (Status::unimplemented("what"), tonic::Code::Internal, "INTERNAL", "internal error"),
        (Status::cancelled("gone"), tonic::Code::Unavailable, "UNAVAILABLE", "gone"),
    ] {
        let mut headers = HeaderMap::new();
        status.add_header(&mut headers).unwrap();
        assert_eq!(complete(&mut headers), Some(code));
        let fault = Fault::from(Status::from_header_map(&headers).unwrap());
        assert_eq!((fault.reason.as_str(), fault.message.as_str()), (reason, message));
    }
}

#[test]
fn a_reason_that_a_service_gave_is_left_alone() {
    let mut headers = HeaderMap::new();
    to_status(&Sample::Full).add_header(&mut headers).unwrap();
    let before = headers.clone();
    assert_eq!(complete(&mut headers), Some(tonic::Code::ResourceExhausted));
    assert_eq!(headers, before);
}

#[test]
fn every_code_survives_the_way_there_and_back() {
    for code in [
        Code::InvalidArgument,
        Code::NotFound,
        Code::AlreadyExists,
        Code::FailedPrecondition,
        Code::PermissionDenied,
        Code::Unauthenticated,
        Code::ResourceExhausted,
        Code::DeadlineExceeded,
        Code::Unavailable,
        Code::Internal,
    ] {
        assert_eq!(Code::from(tonic::Code::from(code)), code);
    }
}
