//! Who may sign what, until when: each way to be wrong has its own refusal.

use crate::pki::{Ca, DOMAIN, NOT_AFTER, NOT_BEFORE, NOW, SIGNER, Spec, grant, receipts_purpose};
use event::{Digest, Executor, Scope};
use rcgen::{ExtendedKeyUsagePurpose, PKCS_ECDSA_P256_SHA256};
use receipt::{
    Audience, Grant, Invalid, Malformed, NoTrust, Obo, OboId, Payload, Receipt, Role, Signed,
    Signer, Signing, Untrusted, Unusable, Verified, Verifier,
};

fn nobody(_: &Signing) -> bool {
    false
}

fn verifier(ca: &Ca) -> Verifier {
    Verifier::new(ca.pem.as_bytes(), DOMAIN).unwrap()
}

fn judge(ca: &Ca, signed: &Signed) -> Result<Grant, Invalid> {
    verifier(ca).verify::<Grant>(signed, NOW, &nobody).map(Verified::into_inner)
}

fn receipt() -> Receipt {
    Receipt {
        id: "0198f000-0000-7000-8000-00000000000b".parse().unwrap(),
        tenant: "default".into(),
        session: grant().session,
        run: "0198f000-0000-7000-8000-000000000002".parse().unwrap(),
        call: "0198f000-0000-7000-8000-00000000000a".parse().unwrap(),
        permission: "0198f000-0000-7000-8000-000000000003".parse().unwrap(),
        plan: Digest::of(b"plan"),
        action: Digest::of(b"action"),
        scope: Scope::Once,
        subject: "dev".into(),
        roles: [Role::Operator].into(),
        approval: None,
        audience: Executor::SandboxSvc,
        iat: NOW,
        exp: NOW + 3_600,
    }
}

fn obo() -> Obo {
    Obo {
        issuer: "spiffe://example.test/svc/gateway/gw-1".into(),
        audience: Audience::AgentSvc,
        tenant: "default".into(),
        subject: "dev".into(),
        roles: vec![Role::Operator],
        method: "/harness.agent.v1.AgentService/Prompt".into(),
        session: Some(grant().session),
        permission: None,
        id: OboId::new(),
        iat: NOW,
        exp: NOW + 60,
    }
}

#[test]
fn what_the_gateway_signs_is_verified_as_it_was_signed() {
    let ca = Ca::new();
    let signer = ca.signer();
    let verifier = verifier(&ca);
    let verified = verifier.verify::<Grant>(&signer.sign(&grant()).unwrap(), NOW, &nobody).unwrap();
    assert_eq!(verified.signing(), signer.signing());
    assert_eq!(verified.signing().spiffe_id, SIGNER);
    assert_eq!(verified.into_inner(), grant());
    let signed = signer.sign(&receipt()).unwrap();
    assert_eq!(*verifier.verify::<Receipt>(&signed, NOW, &nobody).unwrap(), receipt());
    let context = obo();
    let signed = signer.sign(&context).unwrap();
    assert_eq!(*verifier.verify::<Obo>(&signed, NOW, &nobody).unwrap(), context);
}

#[test]
fn a_chain_may_carry_an_issuer_below_the_services_ca() {
    let ca = Ca::new();
    let signed = ca.leaf_below_intermediate(&Spec::receipts()).signer().sign(&grant()).unwrap();
    assert_eq!(judge(&ca, &signed), Ok(grant()));
    let alone = Signed { chain: signed.chain[..1].to_vec(), ..signed };
    assert_eq!(judge(&ca, &alone), Err(Untrusted::Issuer.into()));
}

#[test]
fn another_kind_is_refused_although_its_members_would_fit() {
    let ca = Ca::new();
    let signer = ca.signer();
    let (grant, receipt, obo) = (
        signer.sign(&grant()).unwrap(),
        signer.sign(&receipt()).unwrap(),
        signer.sign(&obo()).unwrap(),
    );
    let verifier = verifier(&ca);
    for signed in [&receipt, &obo] {
        assert_eq!(verifier.verify::<Grant>(signed, NOW, &nobody), Err(Invalid::Signature));
    }
    for signed in [&grant, &obo] {
        assert_eq!(verifier.verify::<Receipt>(signed, NOW, &nobody), Err(Invalid::Signature));
    }
    for signed in [&grant, &receipt] {
        assert_eq!(verifier.verify::<Obo>(signed, NOW, &nobody), Err(Invalid::Signature));
    }
}

#[test]
fn a_payload_or_signature_that_was_changed_is_refused() {
    let ca = Ca::new();
    let signed = ca.signer().sign(&grant()).unwrap();
    let other = Grant { workspace: "other".into(), ..grant() };
    let tampered = Signed { payload: other.to_bytes().unwrap(), ..signed.clone() };
    assert_eq!(judge(&ca, &tampered), Err(Invalid::Signature));
    let cut = Signed { signature: signed.signature[..63].to_vec(), ..signed.clone() };
    assert_eq!(judge(&ca, &cut), Err(Invalid::Signature));
    let borrowed = Signed { chain: ca.signer().sign(&grant()).unwrap().chain, ..signed };
    assert_eq!(judge(&ca, &borrowed), Err(Invalid::Signature));
}

#[test]
fn certificates_of_the_wrong_shape_cannot_sign() {
    let ca = Ca::new();
    let tls = || vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let both = || [tls(), vec![receipts_purpose()]].concat();
    let other = vec![ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 4, 1, 32473, 7, 2])];
    let service = "spiffe://example.test/svc/gateway/gw-1";
    let foreign = "spiffe://foreign.test/receipts/gateway/gw-1";
    let right = Spec::receipts;
    for (name, spec, expected) in [
        (
            "a TLS certificate",
            Spec {
                uris: vec![service],
                purposes: tls(),
                algorithm: &PKCS_ECDSA_P256_SHA256,
                ..right()
            },
            Untrusted::Key,
        ),
        ("a P-256 key", Spec { algorithm: &PKCS_ECDSA_P256_SHA256, ..right() }, Untrusted::Key),
        ("TLS purposes", Spec { purposes: tls(), ..right() }, Untrusted::Purpose),
        (
            "TLS purposes beside the right one",
            Spec { purposes: both(), ..right() },
            Untrusted::Purpose,
        ),
        ("no purpose", Spec { purposes: vec![], ..right() }, Untrusted::Purpose),
        ("another purpose", Spec { purposes: other, ..right() }, Untrusted::Purpose),
        ("no name", Spec { uris: vec![], ..right() }, Untrusted::Names),
        ("two names", Spec { uris: vec![SIGNER, service], ..right() }, Untrusted::Names),
        ("a service's name", Spec { uris: vec![service], ..right() }, Untrusted::Name),
        ("a foreign domain", Spec { uris: vec![foreign], ..right() }, Untrusted::TrustDomain),
        ("an authority", Spec { is_ca: true, ..right() }, Untrusted::Issuer),
        ("an expired one", Spec { not_after: NOW - 1, ..right() }, Untrusted::Validity),
    ] {
        let signed = ca.leaf(&spec).forge(Grant::DOMAIN, &grant().to_bytes().unwrap());
        assert_eq!(judge(&ca, &signed), Err(Invalid::Signer(expected)), "{name}");
    }
}

#[test]
fn a_signer_of_another_authority_is_refused() {
    let signed = Ca::new().signer().sign(&grant()).unwrap();
    assert_eq!(judge(&Ca::new(), &signed), Err(Untrusted::Issuer.into()));
}

#[test]
fn a_chain_that_is_missing_too_long_or_garbage_is_refused() {
    let ca = Ca::new();
    let signed = ca.signer().sign(&grant()).unwrap();
    let with = |chain: Vec<Vec<u8>>| judge(&ca, &Signed { chain, ..signed.clone() });
    let leaf = || signed.chain[0].clone();
    assert_eq!(with(vec![]), Err(Untrusted::Chain.into()));
    assert_eq!(with(vec![leaf(); 5]), Err(Untrusted::Chain.into()));
    assert_eq!(with(vec![leaf(), vec![0; 20_000]]), Err(Untrusted::Chain.into()));
    assert_eq!(with(vec![b"garbage".to_vec()]), Err(Untrusted::Certificate.into()));
    assert_eq!(with(vec![[leaf(), vec![0]].concat()]), Err(Untrusted::Certificate.into()));
    assert_eq!(with(vec![leaf(), b"garbage".to_vec()]), Err(Untrusted::Certificate.into()));
}

#[test]
fn the_deny_list_is_asked_by_name_and_serial() {
    let ca = Ca::new();
    let signer = ca.signer();
    let signed = signer.sign(&grant()).unwrap();
    let verifier = verifier(&ca);
    let by_serial = |signing: &Signing| signing.serial_hex == signer.signing().serial_hex;
    let by_name = |signing: &Signing| signing.spiffe_id == SIGNER;
    assert_eq!(verifier.verify::<Grant>(&signed, NOW, &by_serial), Err(Invalid::Denied));
    assert_eq!(verifier.verify::<Grant>(&signed, NOW, &by_name), Err(Invalid::Denied));
}

#[test]
fn time_is_judged_now_and_the_certificate_when_it_signed() {
    let ca = Ca::new();
    let verifier = verifier(&ca);
    let signed = ca.signer().sign(&grant()).unwrap();
    let at = |now| verifier.verify::<Grant>(&signed, now, &nobody).map(Verified::into_inner);
    assert_eq!(at(grant().exp - 1), Ok(grant()));
    assert!(grant().exp > NOT_AFTER, "it outlives its certificate");
    assert_eq!(at(grant().exp), Err(Invalid::Expired));
    assert_eq!(at(NOW - 60), Ok(grant()));
    assert_eq!(at(NOW - 61), Err(Invalid::NotYetValid));

    let before = Grant { iat: NOT_BEFORE - 1, ..grant() };
    let signed = ca.signer().sign(&before).unwrap();
    assert_eq!(judge(&ca, &signed), Err(Untrusted::Validity.into()));
}

#[test]
fn a_payload_that_is_not_exactly_its_canonical_form_is_refused_even_when_signed() {
    let ca = Ca::new();
    let leaf = ca.leaf(&Spec::receipts());
    let text = String::from_utf8(grant().to_bytes().unwrap()).unwrap();
    let signed = |text: &str| judge(&ca, &leaf.forge(Grant::DOMAIN, text.as_bytes()));
    assert_eq!(signed(&text), Ok(grant()));
    let with = |member: &str| text.replacen('{', &format!("{{{member},"), 1);
    for (name, text) in [
        ("unknown member", with(r#""admin":true"#)),
        ("duplicate member", with(r#""tenant":"other""#)),
        ("missing member", text.replace(r#""tenant":"default","#, "")),
        ("trailing bytes", format!("{text} ")),
        ("float", text.replace(&NOW.to_string(), &format!("{NOW}.0"))),
        ("escapes", text.replace("default", "d\\u0065fault")),
        ("unknown value", text.replace(r#""deny""#, r#""maybe""#)),
        ("not JSON", "grant".to_owned()),
    ] {
        let refused = signed(&text).unwrap_err();
        assert_eq!(refused.reason(), "PAYLOAD_MALFORMED", "{name}: {refused}");
    }
}

#[test]
fn a_life_that_is_empty_or_too_long_is_neither_signed_nor_accepted() {
    let ca = Ca::new();
    let leaf = ca.leaf(&Spec::receipts());
    let hours = 12 * 3_600;
    for exp in [NOW, NOW - 1, NOW + hours + 1] {
        let payload = Grant { exp, ..grant() };
        assert_eq!(leaf.signer().sign(&payload), Err(Malformed::Lifetime));
        let text = String::from_utf8(grant().to_bytes().unwrap()).unwrap();
        let text = text.replace(&grant().exp.to_string(), &exp.to_string());
        let forged = leaf.forge(Grant::DOMAIN, text.as_bytes());
        assert_eq!(judge(&ca, &forged), Err(Malformed::Lifetime.into()));
    }
    assert_eq!(ca.signer().sign(&Obo { exp: NOW + 61, ..obo() }), Err(Malformed::Lifetime));
}

#[test]
fn every_refusal_has_a_stable_reason() {
    let reasons = [
        Invalid::Signature,
        Untrusted::Issuer.into(),
        Invalid::Denied,
        Invalid::Expired,
        Invalid::NotYetValid,
        Malformed::Json.into(),
    ]
    .map(|invalid| invalid.reason());
    assert_eq!(
        reasons,
        [
            "SIGNATURE_INVALID",
            "SIGNER_UNTRUSTED",
            "SIGNER_DENIED",
            "EXPIRED",
            "NOT_YET_VALID",
            "PAYLOAD_MALFORMED"
        ]
    );
}

#[test]
fn a_signer_refuses_material_that_verifiers_would_refuse() {
    let ca = Ca::new();
    let (one, other) = (ca.leaf(&Spec::receipts()), ca.leaf(&Spec::receipts()));
    let p256 = ca.leaf(&Spec { algorithm: &PKCS_ECDSA_P256_SHA256, ..Spec::receipts() });
    let from = |chain: &str, key: &str| Signer::from_pem(chain.as_bytes(), key.as_bytes());
    assert!(matches!(from(&one.chain_pem, &other.key_pem), Err(Unusable::Mismatch)));
    assert!(matches!(from(&one.chain_pem, &p256.key_pem), Err(Unusable::Key)));
    assert!(matches!(
        from(&p256.chain_pem, &one.key_pem),
        Err(Unusable::Certificate(Untrusted::Key))
    ));
    assert!(matches!(from("", &one.key_pem), Err(Unusable::Certificate(Untrusted::Chain))));
    assert!(matches!(from(&one.chain_pem, ""), Err(Unusable::KeyPem(_))));
    let shown = format!("{:?}", one.signer());
    assert!(shown.contains(SIGNER) && !shown.contains("PRIVATE"), "{shown}");
}

#[test]
fn a_verifier_needs_an_authority_and_a_domain() {
    let pem = Ca::new().pem;
    assert!(matches!(Verifier::new(b"", DOMAIN), Err(NoTrust::Empty)));
    assert!(matches!(Verifier::new(pem.as_bytes(), ""), Err(NoTrust::TrustDomain)));
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(Verifier::new(garbage.as_bytes(), DOMAIN), Err(NoTrust::Certificate(_))));
}

#[test]
fn the_ledgers_record_holds_all_that_verification_needs() {
    let ca = Ca::new();
    let signed = ca.leaf_below_intermediate(&Spec::receipts()).signer().sign(&receipt()).unwrap();
    let record = signed.to_record().unwrap();
    assert_eq!(record["subject"], "dev");
    assert_eq!(event::redact::redact(&record).unwrap().value, record, "redaction leaves it whole");
    let again = Signed::from_record(&record).unwrap();
    assert_eq!(again, signed);
    assert_eq!(*verifier(&ca).verify::<Receipt>(&again, NOW, &nobody).unwrap(), receipt());
}

#[test]
fn the_metadata_form_reads_back_and_has_one_spelling() {
    let signed = Ca::new().signer().sign(&obo()).unwrap();
    let bytes = signed.to_bytes().unwrap();
    assert_eq!(Signed::parse(&bytes), Ok(signed));
    assert!(Signed::parse(&[&bytes[..], b"\n"].concat()).is_err());
    assert!(Signed::parse(br#"{"chain":[],"payload":"YQ","signature":""}"#).is_err());
}
