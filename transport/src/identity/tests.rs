//! Names that are identities, and the many that only look so.
use proptest::prelude::*;

use super::*;

fn domain() -> TrustDomain {
    "harness.test".parse().unwrap()
}

fn segment() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9._-]{1,20}".prop_filter("dot segments", |text| text != "." && text != "..")
}

fn identity() -> impl Strategy<Value = Identity> {
    prop_oneof![
        (0..Service::ALL.len(), segment())
            .prop_map(|(at, instance)| Identity::Service { service: Service::ALL[at], instance }),
        (segment(), segment()).prop_map(|(tenant, name)| Identity::Client { tenant, name }),
        segment().prop_map(|name| Identity::Auditor { name }),
    ]
}

proptest! {
    #[test]
    fn an_identity_survives_the_way_into_a_certificate_and_back(identity in identity()) {
        prop_assert_eq!(Identity::parse(&identity.uri(&domain()), &domain()), Ok(identity));
    }

    #[test]
    fn what_parses_is_written_in_one_way_only(text in "spiffe://harness\\.test/(svc|client|auditor|receipts)(/[ -~]{0,12}){0,4}") {
        if let Ok(identity) = Identity::parse(&text, &domain()) {
            prop_assert_eq!(identity.uri(&domain()), text);
        }
    }

    #[test]
    fn no_text_makes_parsing_panic(text in ".{0,200}") {
        let parsed = Identity::parse(&text, &domain());
        prop_assert!(parsed.is_err() || text.starts_with("spiffe://harness.test/"));
    }

    #[test]
    fn an_identity_of_another_trust_domain_is_refused(identity in identity(), other in "[a-z0-9.-]{1,30}") {
        prop_assume!(other != "harness.test");
        let uri = identity.uri(&other.parse().unwrap());
        prop_assert_eq!(Identity::parse(&uri, &domain()), Err(Malformed::OtherTrustDomain));
    }

    #[test]
    fn more_or_other_characters_never_make_the_same_identity(identity in identity(), tail in "[/?#%@: ]{1,3}") {
        let uri = identity.uri(&domain()) + &tail;
        prop_assert!(Identity::parse(&uri, &domain()).is_err());
    }
}

#[test]
fn odd_ids_are_refused_each_with_its_reason() {
    for (uri, why) in [
        ("", Malformed::Uri),
        ("https://harness.test/svc/gateway/0", Malformed::Uri),
        ("SPIFFE://harness.test/svc/gateway/0", Malformed::Uri),
        ("spiffe://harness.test", Malformed::Uri),
        ("spiffe://harness.test/", Malformed::Uri),
        ("spiffe:///svc/gateway/0", Malformed::TrustDomain),
        ("spiffe://Harness.test/svc/gateway/0", Malformed::TrustDomain),
        ("spiffe://harness.test:443/svc/gateway/0", Malformed::TrustDomain),
        ("spiffe://user@harness.test/svc/gateway/0", Malformed::TrustDomain),
        ("spiffe://*/svc/gateway/0", Malformed::TrustDomain),
        ("spiffe://harness.test.evil/svc/gateway/0", Malformed::OtherTrustDomain),
        ("spiffe://evil/harness.test/svc/gateway/0", Malformed::OtherTrustDomain),
        ("spiffe://harness.test/svc/gateway", Malformed::Role),
        ("spiffe://harness.test/svc/gateway/0/x", Malformed::Role),
        ("spiffe://harness.test/svc/gateway/", Malformed::Uri),
        ("spiffe://harness.test//svc/gateway/0", Malformed::Uri),
        ("spiffe://harness.test/svc/../svc/gateway/0", Malformed::Uri),
        ("spiffe://harness.test/svc/agent-svc-evil/0", Malformed::Service),
        ("spiffe://harness.test/svc/agent%2dsvc/0", Malformed::Uri),
        ("spiffe://harness.test/svc/gateway/0?x", Malformed::Uri),
        ("spiffe://harness.test/Svc/gateway/0", Malformed::Role),
        ("spiffe://harness.test/auditor/a/b", Malformed::Role),
        ("spiffe://harness.test/client/tenant", Malformed::Role),
        ("spiffe://harness.test/receipts/gateway/0", Malformed::SigningOnly),
    ] {
        assert_eq!(Identity::parse(uri, &domain()), Err(why), "{uri}");
    }
}

#[test]
fn an_endless_id_is_refused() {
    let uri = format!("spiffe://harness.test/svc/gateway/{}", "a".repeat(MAX_URI));
    assert_eq!(Identity::parse(&uri, &domain()), Err(Malformed::Uri));
}

#[test]
fn a_trust_domain_is_a_name_and_never_a_pattern() {
    for text in ["", "*", "a*", "A", "a b", "a/b", "a:1", &"a".repeat(256)] {
        assert_eq!(text.parse::<TrustDomain>(), Err(Malformed::TrustDomain), "{text}");
    }
}
