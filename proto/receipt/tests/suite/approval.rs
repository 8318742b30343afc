//! A person's own signature: written in one form, proven by one key, and refused in every other case.

use crate::people::{allow, approval, key, plan, signed};
use crate::pki::NOW;
use event::id::{CallId, PermissionId, RunId, SessionId};
use event::{Digest, Scope};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use receipt::{
    Approval, ApproverKey, Malformed, NotAKey, Payload as _, PublicKey, Receipt, Role,
    SignedApproval, Unproven,
};

fn receipt() -> Receipt {
    allow(&plan(vec![]), "alice", &[Role::Operator], Scope::Once)
}

#[test]
fn keys_that_cannot_sign_or_verify_are_refused() {
    let other = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let pem = other.serialize_pem();
    assert_eq!(ApproverKey::from_pem(pem.as_bytes()).unwrap_err(), NotAKey::Kind);
    assert_eq!(ApproverKey::from_pem(b"key").unwrap_err(), NotAKey::Pem);
    assert_eq!(ApproverKey::from_pem(b"").unwrap_err(), NotAKey::Pem);
    assert_eq!(PublicKey::parse(&other.public_key_pem()), Err(NotAKey::Kind));
    assert_eq!(PublicKey::parse(&pem), Err(NotAKey::Pem));
    for text in ["", "AAAA", "-", "key", &"A".repeat(44)] {
        assert_eq!(PublicKey::parse(text), Err(NotAKey::Base64), "{text}");
    }
}

#[test]
fn a_listed_key_may_be_written_as_pem_or_base64() {
    let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let private = ApproverKey::from_pem(pair.serialize_pem().as_bytes()).unwrap();
    let public = PublicKey::parse(&pair.public_key_pem()).unwrap();
    assert_eq!(private.public(), Ok(public));
    assert_eq!(PublicKey::parse(&public.to_string()), Ok(public));
    assert_eq!(PublicKey::parse(&format!(" {public}\n")), Ok(public));
    assert_eq!(public.id(), Digest::of(pair.public_key_raw()));
}

#[test]
fn what_a_person_signs_is_written_as_documented() {
    let nil = "00000000-0000-0000-0000-000000000000";
    let digest = Digest::of(b"x");
    let approval = Approval {
        plan: digest,
        action: digest,
        permission: PermissionId::nil(),
        session: SessionId::nil(),
        run: RunId::nil(),
        call: CallId::nil(),
        scope: Scope::Run,
        subject: "alice".into(),
        iat: 1,
        exp: 2,
    };
    let bytes = approval.to_bytes().unwrap();
    assert_eq!(
        String::from_utf8(bytes.clone()).unwrap(),
        format!(
            r#"{{"action":"{digest}","call":"{nil}","exp":2,"iat":1,"permission":"{nil}","plan":"{digest}","run":"{nil}","scope":"run","session":"{nil}","subject":"alice"}}"#
        )
    );
    assert_eq!(Approval::parse(&bytes), Ok(approval.clone()));
    for (iat, exp) in [(1, 1), (2, 1), (0, 3_601), (0, u64::MAX)] {
        let other = Approval { iat, exp, ..approval.clone() };
        assert_eq!(other.to_bytes(), Err(Malformed::Lifetime), "{iat} to {exp}");
    }
    let long = Approval { subject: "a".repeat(4_096), ..approval };
    assert_eq!(long.to_bytes(), Err(Malformed::TooLong { limit: 4_096 }));
}

#[test]
fn only_the_key_that_signed_proves_it() {
    let (key, other) = (key(), key());
    let approval = approval(&receipt());
    let signed = key.sign(&approval).unwrap();
    let public = key.public().unwrap();
    assert_eq!(signed.verify(&public), Ok(approval.clone()));
    assert_eq!(signed.read(), Ok(approval));
    assert_eq!(signed.verify(&other.public().unwrap()), Err(Unproven::Key));
    // Whoever names the right key has not signed with it.
    let (payload, signature) = (signed.payload_text(), signed.signature_text());
    let named = other.public().unwrap();
    let forged = SignedApproval::from_text(&payload, &signature, named.id()).unwrap();
    assert_eq!(forged.verify(&named), Err(Unproven::Signature));
}

#[test]
fn no_single_bit_of_payload_or_signature_can_change() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let key = key();
    let signed = key.sign(&approval(&receipt())).unwrap();
    let public = key.public().unwrap();
    let payload = STANDARD.decode(signed.payload_text()).unwrap();
    let signature = hex::decode(signed.signature_text()).unwrap();
    let refused = |payload: &[u8], signature: &[u8]| {
        SignedApproval::from_text(&STANDARD.encode(payload), &hex::encode(signature), public.id())
            .unwrap()
            .verify(&public)
            .is_err()
    };
    assert!(!refused(&payload, &signature));
    for bit in 0..payload.len() * 8 {
        let mut other = payload.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(refused(&other, &signature), "payload bit {bit}");
    }
    for bit in 0..signature.len() * 8 {
        let mut other = signature.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(refused(&payload, &other), "signature bit {bit}");
    }
}

#[test]
fn a_gateways_signature_is_no_persons() {
    // The same key under another domain: what it signed as a receipt proves no approval.
    let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let bytes = approval(&receipt()).to_bytes().unwrap();
    let message = [b"harness.receipt.v1\0".as_slice(), &bytes].concat();
    let signature = rcgen::SigningKey::sign(&pair, &message).unwrap();
    let public = PublicKey::parse(&pair.public_key_pem()).unwrap();
    let payload = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(&bytes)
    };
    let signed = SignedApproval::from_text(&payload, &hex::encode(signature), public.id()).unwrap();
    assert_eq!(signed.verify(&public), Err(Unproven::Signature));
}

#[test]
fn an_approval_has_one_spelling_in_a_receipt() {
    let receipt = signed(receipt(), &key());
    let bytes = receipt.to_bytes().unwrap();
    assert_eq!(Receipt::parse(&bytes), Ok(receipt.clone()));
    let text = String::from_utf8(bytes).unwrap();
    let signature = receipt.approval.as_ref().unwrap().signature_text();
    for (name, other) in [
        ("capitals", text.replace(&signature, &signature.to_uppercase())),
        ("a shorter signature", text.replace(&signature, &signature[2..])),
        ("no signature", text.replace(&format!(r#","signature":"{signature}""#), "")),
        ("no base64", text.replace(r#""payload":""#, r#""payload":"!"#)),
        ("more", text.replace(r#""payload":""#, r#""payer":"","payload":""#)),
        ("a null", text.replace(r#""approval":{"#, r#""approval":null,"x":{"#)),
        ("roles twice", text.replace(r#"["operator"]"#, r#"["operator","operator"]"#)),
        ("roles in another order", text.replace(r#"["operator"]"#, r#"["admin","operator"]"#)),
        ("no roles, written", text.replace(r#"["operator"]"#, "[]")),
    ] {
        assert_ne!(other, text, "{name}");
        assert!(Receipt::parse(other.as_bytes()).is_err(), "{name}");
    }
}

/// The ledger's copy puts the gateway's signature beside the payload's members, so none of those may be named like it.
#[test]
fn the_ledgers_copy_keeps_both_signatures() {
    let world = crate::people::World::new();
    let receipt = signed(receipt(), &key());
    let sent = world.signer.sign(&receipt).unwrap();
    let record = sent.to_record().unwrap();
    assert_eq!(event::redact::redact(&record).unwrap().value, record, "redaction leaves it whole");
    assert_eq!(receipt::Signed::from_record(&record), Ok(sent));
    let kept = receipt.approval.unwrap();
    assert_eq!(record["approval"]["signature"], kept.signature_text());
    assert_eq!(record["approval"]["payload"], kept.payload_text());
    assert!(receipt.iat == NOW && record["signature"] != record["approval"]["signature"]);
}

#[test]
fn a_receipt_without_roles_and_approval_is_written_as_before() {
    let old = Receipt { roles: [].into(), ..receipt() };
    let text = String::from_utf8(old.to_bytes().unwrap()).unwrap();
    assert!(!text.contains("roles") && !text.contains("approval"), "{text}");
    assert_eq!(Receipt::parse(text.as_bytes()), Ok(old));
}
